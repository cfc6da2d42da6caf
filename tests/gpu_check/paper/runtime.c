/* A GPU of paper: the CUDA runtime and driver without a device.
 *
 * It hands out host memory, keeps the rules of devices, streams and pinned memory, counts what is asked of it, and computes
 * nothing: kernels do not run, so that what lies on the "device" are zeros and what the host copied there. torch believes in it,
 * and everything above the driver is real: checks of devices, the choice of attention kernel, the caching allocator, autograd's
 * threads, Triton's and Inductor's compilers.
 *
 * Environment: PAPER_CC (compute capability, 90), PAPER_GIB (memory, 80), PAPER_KIB (shared memory of a program, if not the
 * card's), PAPER_DEVICES (1), PAPER_NAMES (1 counts each kernel by its name). Not for two ranks: NCCL never delivers. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define API __attribute__((visibility("default")))
/* A call that succeeds and returns nothing that is read needs no line here: build.py makes a stub that counts it. */

static long setting(const char *name, long usual) {
  const char *value = getenv(name);
  return value ? atol(value) : usual;
}
static int capability(void) { return (int)setting("PAPER_CC", 90); }
static size_t memory(void) { return (size_t)setting("PAPER_GIB", 80) << 30; }
static int devices(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  int all = (int)setting("PAPER_DEVICES", 1), named = 1;
  if (!visible) return all;
  if (!*visible || *visible == '-') return 0;
  for (; *visible; visible++) named += *visible == ',';
  return named < all ? named : all;
}
/* Shared memory that one program may take: the same figures as in triton/launches.py. */
static int shared_memory(void) {
  int c = capability();
  if (getenv("PAPER_KIB")) return (int)setting("PAPER_KIB", 0) * 1024;
  return (c == 80 ? 163 : c == 86 || c == 89 || c >= 120 ? 99 : 227) * 1024;
}

/* ---- what is counted, by name ---- */
#define MOST_NAMES 4096
static struct { const char *name; long count; } counted[MOST_NAMES];
static int names;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static void (*on_wait)(const char *);

API void paper_count(const char *name) {
  pthread_mutex_lock(&counting);
  int i = 0;
  while (i < names && counted[i].name != name && strcmp(counted[i].name, name)) i++;
  if (i == names && names < MOST_NAMES) counted[names++].name = strdup(name);
  if (i < MOST_NAMES) counted[i].count++;
  pthread_mutex_unlock(&counting);
}
API int paper_size(void) { return names; }
API const char *paper_name(int i) { return counted[i].name; }
API long paper_value(int i) { return counted[i].count; }
API void paper_on_wait(void (*call)(const char *)) { on_wait = call; }
static int waits(const char *for_what) {
  paper_count(for_what);
  if (on_wait) on_wait(for_what);
  return 0;
}

/* ---- memory ---- */
typedef struct Block { char *at; size_t size; int kind, device; struct Block *next; } Block;
static Block *blocks;
static size_t held;
static pthread_mutex_t blocked = PTHREAD_MUTEX_INITIALIZER;
static __thread int current;

static void keep(void *at, size_t size, int kind) {
  Block *block = malloc(sizeof *block);
  *block = (Block){at, size ? size : 1, kind, current, 0};
  pthread_mutex_lock(&blocked);
  block->next = blocks;
  blocks = block;
  pthread_mutex_unlock(&blocked);
}
static Block *block_of(const void *p) {
  Block *b = blocks;
  while (b && !((char *)p >= b->at && (char *)p < b->at + b->size)) b = b->next;
  return b;
}
static int kind_of(const void *p) {
  pthread_mutex_lock(&blocked);
  Block *b = block_of(p);
  int kind = b ? b->kind : cudaMemoryTypeUnregistered;
  pthread_mutex_unlock(&blocked);
  return kind;
}
API cudaError_t cudaMalloc(void **p, size_t n) {
  if (held + n > memory()) return cudaErrorMemoryAllocation;
  /* Pages that nobody writes take no memory of the host. */
  void *m = mmap(0, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED) return cudaErrorMemoryAllocation;
  held += n;
  keep(m, n, cudaMemoryTypeDevice);
  *p = m;
  return 0;
}
API cudaError_t cudaFree(void *p) {
  pthread_mutex_lock(&blocked);
  for (Block **b = &blocks; p && *b; b = &(*b)->next)
    if ((*b)->at == p) {
      Block *gone = *b;
      *b = gone->next;
      held -= gone->size;
      munmap(p, gone->size);
      free(gone);
      break;
    }
  pthread_mutex_unlock(&blocked);
  return 0;
}
API cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) { return cudaMalloc(p, n); }
API cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { return cudaFree(p); }
API cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) {
  *p = aligned_alloc(4096, (n + 4096) / 4096 * 4096);
  keep(*p, n, cudaMemoryTypeHost);
  return 0;
}
API cudaError_t cudaFreeHost(void *p) { return 0; }
API cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags) { return keep(p, n, cudaMemoryTypeHost), 0; }
API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  pthread_mutex_lock(&blocked);
  Block *b = block_of(p);
  if (b) *a = (struct cudaPointerAttributes){.type = b->kind, .device = b->device, .devicePointer = (void *)p, .hostPointer = (void *)p};
  pthread_mutex_unlock(&blocked);
  return 0;
}
static cudaError_t copy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, int waiting) {
  int to_kind = kind_of(to), from_kind = kind_of(from);
  int pinned = to_kind == cudaMemoryTypeHost || from_kind == cudaMemoryTypeHost;
  if (kind == cudaMemcpyDefault)
    kind = to_kind != cudaMemoryTypeDevice ? cudaMemcpyDeviceToHost
         : from_kind == cudaMemoryTypeDevice ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  if (kind == cudaMemcpyDeviceToDevice) {
    if (n <= 4096) memmove(to, from, n); /* a larger one would touch pages that stand for no memory */
    return 0;
  }
  memcpy(to, from, n);
  /* The driver stages a copy of pageable memory, and the host waits until it is staged. */
  if (kind == cudaMemcpyHostToDevice && !pinned) waits("wait: copy of pageable memory");
  if (waiting) waits("wait: copy");
  return 0;
}
API cudaError_t cudaMemcpy(void *t, const void *f, size_t n, enum cudaMemcpyKind k) { return copy(t, f, n, k, 1); }
API cudaError_t cudaMemcpyAsync(void *t, const void *f, size_t n, enum cudaMemcpyKind k, cudaStream_t s) {
  return copy(t, f, n, k, 0);
}
API cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s) {
  if (n <= 65536) memset(p, v, n);
  return 0;
}
API cudaError_t cudaMemset(void *p, int v, size_t n) { return cudaMemsetAsync(p, v, n, 0); }
API cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) { return *total = memory(), *unused = memory() - held, 0; }

/* ---- devices ---- */
API cudaError_t cudaGetDeviceCount(int *n) { return (*n = devices()) ? cudaSuccess : cudaErrorNoDevice; }
API cudaError_t cudaGetDevice(int *d) { return *d = current, 0; }
API cudaError_t cudaSetDevice(int d) { return d < 0 || d >= devices() ? cudaErrorInvalidDevice : (current = d, cudaSuccess); }
API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Paper GPU (sm_%d)", capability());
  p->uuid.bytes[0] = (char)(device + 1);
  p->totalGlobalMem = memory();
  p->major = capability() / 10, p->minor = capability() % 10;
  p->multiProcessorCount = 132, p->warpSize = 32, p->maxThreadsPerBlock = 1024, p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048, p->regsPerMultiprocessor = p->regsPerBlock = 65536;
  p->sharedMemPerBlock = 49152, p->sharedMemPerBlockOptin = shared_memory();
  p->sharedMemPerMultiprocessor = shared_memory() + 1024;
  p->l2CacheSize = 50 << 20, p->totalConstMem = 65536, p->memoryBusWidth = 5120, p->textureAlignment = 512;
  p->unifiedAddressing = p->concurrentKernels = p->cooperativeLaunch = p->canMapHostMemory = 1, p->asyncEngineCount = 3;
  return 0;
}
/* The numbers are CUdevice_attribute's; cudaDeviceAttr has the same. */
static int attribute(int which) {
  switch (which) {
  case 1: case 2: case 3: return 1024;                            /* threads of a block, and along x and y */
  case 4: return 64;                                              /* along z */
  case 5: return 2147483647;                                      /* blocks along x */
  case 6: case 7: return 65535;                                   /* along y and z */
  case 8: return 49152;                                           /* shared memory of a block that does not ask for more */
  case 10: return 32;                                             /* warp */
  case 12: case 82: return 65536;                                 /* registers */
  case 13: return 1980000;
  case 14: return 512;
  case 16: return 132;                                            /* multiprocessors */
  case 31: case 41: case 95: return 1;
  case 36: return 2619000;
  case 37: return 5120;
  case 38: return 50 << 20;
  case 39: return 2048;
  case 75: return capability() / 10;
  case 76: return capability() % 10;
  case 81: return shared_memory() + 1024;
  case 97: return shared_memory();
  case 106: return 32;
  default: return 0;
  }
}
API cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr which, int d) { return *v = attribute(which), 0; }
API cudaError_t cudaDriverGetVersion(int *v) { return *v = 13000, 0; }
API cudaError_t cudaRuntimeGetVersion(int *v) { return *v = 13000, 0; }
API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, 0; }
API cudaError_t cudaDeviceCanAccessPeer(int *v, int a, int b) { return *v = 0, 0; }
API cudaError_t cudaDeviceGetPCIBusId(char *s, int n, int d) { return snprintf(s, n, "0000:%02d:00.0", d), 0; }
API const char *cudaGetErrorString(cudaError_t e) { return e == cudaErrorMemoryAllocation ? "out of memory" : e ? "error on paper" : "no error"; }
API const char *cudaGetErrorName(cudaError_t e) { return e ? "cudaErrorPaper" : "cudaSuccess"; }
API cudaError_t cudaGetLastError(void) { return 0; }
API cudaError_t cudaPeekAtLastError(void) { return 0; }

/* ---- streams and events ---- */
static char handle[64];
static long next_stream = 0x1000;
API cudaError_t cudaDeviceSynchronize(void) { return waits("wait: device"); }
API cudaError_t cudaStreamSynchronize(cudaStream_t s) { return waits("wait: stream"); }
API cudaError_t cudaEventSynchronize(cudaEvent_t e) { return waits("wait: event"); }
API cudaError_t cudaEventQuery(cudaEvent_t e) { return 0; }
API cudaError_t cudaStreamQuery(cudaStream_t s) { return 0; }
API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *(double *)e = t.tv_sec * 1e3 + t.tv_nsec / 1e6; /* the host's time: what launching costs, never what a kernel does */
  return 0;
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) { return cudaEventRecord(e, s); }
API cudaError_t cudaEventElapsedTime(float *t, cudaEvent_t a, cudaEvent_t b) { return *t = (float)(*(double *)b - *(double *)a) + 1e-4f, 0; }
API cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = calloc(1, sizeof(double)), 0; }
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { return cudaEventCreate(e); }
API cudaError_t cudaEventDestroy(cudaEvent_t e) { return free(e), 0; }
API cudaError_t cudaStreamCreate(cudaStream_t *s) { return *s = (void *)(next_stream += 16), 0; }
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return cudaStreamCreate(s); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) { return cudaStreamCreate(s); }
API cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority) { return *priority = 0, 0; }
API cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) { return *status = 0, 0; }
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
    cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n) {
  *status = 0;
  if (id) *id = 0;
  if (n) *n = 0;
  return 0;
}

/* ---- kernels of the runtime: each is registered by name, and found by the address of its host function ---- */
#define MOST_KERNELS 200000
static struct { const void *at; const char *name; } kernels[MOST_KERNELS];
static int num_kernels, sorted;
API void **__cudaRegisterFatBinary(void *binary) { return (void **)handle; }
API void __cudaRegisterFatBinaryEnd(void **h) {}
API void __cudaUnregisterFatBinary(void **h) {}
API void __cudaRegisterVar(void **h, char *a, char *b, const char *c, int d, size_t e, int f, int g) {}
API char __cudaInitModule(void **h) { return 1; }
API void __cudaRegisterFunction(void **h, const char *host, char *device, const char *name, int limit, void *a, void *b, void *c,
    void *d, int *e) {
  if (num_kernels == MOST_KERNELS) return;
  kernels[num_kernels].at = host;
  kernels[num_kernels++].name = name;
}
static int by_address(const void *a, const void *b) {
  const char *x = *(const char **)a, *y = *(const char **)b;
  return x < y ? -1 : x > y;
}
static const char *name_of(const void *kernel) {
  if (!sorted) qsort(kernels, num_kernels, sizeof *kernels, by_address), sorted = 1;
  for (int low = 0, high = num_kernels - 1; low <= high;) {
    int middle = (low + high) / 2;
    if (kernels[middle].at == kernel) return kernels[middle].name;
    if (kernels[middle].at < kernel) low = middle + 1; else high = middle - 1;
  }
  return "unknown";
}
static void launched(const char *name) {
  static int by_name = -1;
  if (by_name < 0) by_name = (int)setting("PAPER_NAMES", 0);
  paper_count("launch");
  if (!by_name) return;
  char text[256];
  snprintf(text, sizeof text, "kernel %s", name);
  paper_count(text);
}
/* A kernel of Triton or Inductor, with the size of its programs: what was launched, whatever a table says. */
static CUresult launched_as(CUfunction f, unsigned x, unsigned y, unsigned z, size_t shared) {
  launched((const char *)f);
  if (!setting("PAPER_NAMES", 0)) return 0;
  char text[300];
  snprintf(text, sizeof text, "program %s %u %zu", (const char *)f, x * y * z, shared);
  paper_count(text);
  return 0;
}
static cudaError_t runs(const void *kernel) { return launched(name_of(kernel)), 0; }
static __thread struct { dim3 grid, block; size_t shared; void *stream; } pushed[16];
static __thread int depth;
API unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t s, void *t) {
  if (depth < 16) pushed[depth].grid = g, pushed[depth].block = b, pushed[depth].shared = s, pushed[depth].stream = t;
  depth++;
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *s, void *t) {
  if (--depth < 16) *g = pushed[depth].grid, *b = pushed[depth].block, *s = pushed[depth].shared, *(void **)t = pushed[depth].stream;
  return 0;
}
API cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *f) { return *k = (void *)f, 0; }
API cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3 g, dim3 b, void **a, size_t s, cudaStream_t t) { return runs(f); }
API cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t s, cudaStream_t t) { return runs(f); }
API cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 g, dim3 b, void **a, size_t s, cudaStream_t t) { return runs(f); }
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) { return runs(f); }
API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a);
  /* torch's wheel has no binary of its own for 8.9, which takes that of 8.6; sorting chooses its settings by this number. */
  a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->ptxVersion = a->binaryVersion = capability() == 89 ? 86 : capability();
  a->maxDynamicSharedSizeBytes = shared_memory();
  return 0;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) { return *n = 2, 0; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned fl) {
  return *n = 2, 0;
}
API cudaError_t cudaGetSymbolAddress(void **p, const void *s) { return *p = handle, 0; }
static int nothing(void) { return 0; }
API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result) {
  void *own = dlsym(RTLD_DEFAULT, name);
  *f = own ? own : (void *)nothing;
  if (result) *result = 0;
  return 0;
}

/* ---- the driver, which Triton's launcher calls ---- */
#undef cuDevicePrimaryCtxGetState
API CUresult cuInit(unsigned flags) { return 0; }
API CUresult cuDriverGetVersion(int *v) { return *v = 13000, 0; }
API CUresult cuDeviceGetCount(int *n) { return *n = devices(), 0; }
API CUresult cuDeviceGet(CUdevice *d, int i) { return *d = i, 0; }
API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) { return *v = attribute(a), 0; }
API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) { return *flags = 0, *active = 1, 0; }
API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return *c = (void *)handle, 0; }
API CUresult cuCtxGetCurrent(CUcontext *c) { return *c = (void *)handle, 0; }
API CUresult cuCtxSetCurrent(CUcontext c) { return 0; }
API CUresult cuCtxGetDevice(CUdevice *d) { return *d = current, 0; }
API CUresult cuCtxSetLimit(CUlimit l, size_t v) { return 0; }
API CUresult cuCtxGetLimit(size_t *v, CUlimit l) { return *v = 1 << 20, 0; }
API CUresult cuCtxSynchronize(void) { return waits("wait: context"); }
API CUresult cuGetErrorString(CUresult e, const char **s) { return *s = "error on paper", 0; }
API CUresult cuGetErrorName(CUresult e, const char **s) { return *s = "paper", 0; }
API CUresult cuModuleLoad(CUmodule *m, const char *p) { return *m = (void *)handle, 0; }
API CUresult cuModuleLoadData(CUmodule *m, const void *p) { return *m = (void *)handle, 0; }
API CUresult cuModuleLoadDataEx(CUmodule *m, const void *p, unsigned n, CUjit_option *o, void **v) { return *m = (void *)handle, 0; }
API CUresult cuModuleUnload(CUmodule m) { return 0; }
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) { return *f = (CUfunction)strdup(name), 0; }
API CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) { return *v = a == 0 ? 1024 : a == 4 ? 32 : 0, 0; }
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return 0; }
API CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache c) { return 0; }
API CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s,
    CUstream t, void **k, void **x) { return launched_as(f, d, e, g, s); }
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **k, void **x) {
  return launched_as(f, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes);
}
API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
    unsigned s, CUstream t, void **k) { return launched_as(f, d, e, g, s); }
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int b, size_t s) { return *n = 2, 0; }
API CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction f, const CUlaunchConfig *c) { return *n = 2, 0; }
API CUresult cuPointerGetAttribute(void *v, CUpointer_attribute a, CUdeviceptr p) {
  memset(v, 0, 8);
  if (a == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *(CUdeviceptr *)v = p;
  if (a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *(unsigned *)v = CU_MEMORYTYPE_DEVICE;
  return 0;
}
API CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *a, void **v, CUdeviceptr p) {
  for (unsigned i = 0; i < n; i++) cuPointerGetAttribute(v[i], a[i], p);
  return 0;
}

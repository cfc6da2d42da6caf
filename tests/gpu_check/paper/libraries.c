/* The libraries of paper: what cuBLAS, cuDNN and others return that torch reads, and the types of products. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
extern void paper_count(const char *name);
static char handle[64];

/* ---- products, counted by the type of their factors ---- */
static const char *type_name(int type) { /* cudaDataType */
  return type == 0 ? "float32" : type == 1 ? "float64" : type == 2 ? "float16" : type == 14 ? "bfloat16" : "other";
}
static int product(int type) {
  char text[64];
  snprintf(text, sizeof text, "product %s", type_name(type));
  paper_count(text);
  return 0;
}
API int cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, void *alpha, void *a, int type, int lda) { return product(type); }
API int cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, void *alpha, void *a, int type, int lda) { return product(type); }
API int cublasGemmBatchedEx(void *h, int ta, int tb, int m, int n, int k, void *alpha, void *a, int type, int lda) { return product(type); }
#define PRODUCT(name, type) API int name(void) { return product(type); }
PRODUCT(cublasSgemm_v2, 0) PRODUCT(cublasSgemmStridedBatched, 0) PRODUCT(cublasSgemmBatched, 0) PRODUCT(cublasSgemv_v2, 0)
PRODUCT(cublasSgemmEx, 0) PRODUCT(cublasSdot_v2, 0)
PRODUCT(cublasDgemm_v2, 1) PRODUCT(cublasDgemmStridedBatched, 1) PRODUCT(cublasDgemmBatched, 1) PRODUCT(cublasDgemv_v2, 1)

typedef struct { int type; } MatrixLayout;
API int cublasLtMatrixLayoutCreate(void **h, int type, uint64_t rows, uint64_t columns, int64_t step) {
  MatrixLayout *made = malloc(sizeof *made);
  made->type = type;
  *h = made;
  return 0;
}
API int cublasLtMatrixLayoutDestroy(void *h) { return free(h), 0; }
API int cublasLtMatmul(void *h, void *description, void *alpha, void *a, MatrixLayout *layout) { return product(layout->type); }
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } Heuristic;
API int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int n, Heuristic *result, int *found) {
  memset(result, 0, sizeof *result);
  *found = 1;
  return 0;
}

/* ---- handles ---- */
#define MAKES(name) API int name(void **h) { *h = handle; return 0; }
MAKES(cublasCreate_v2) MAKES(cublasLtCreate) MAKES(cublasLtMatmulPreferenceCreate) MAKES(cudnnCreate)
MAKES(cudnnCreateTensorDescriptor) MAKES(cusolverDnCreate) MAKES(cusolverDnCreateParams) MAKES(cusparseCreate)
API int cublasLtMatmulDescCreate(void **h, int compute, int scale) { *h = handle; return 0; }
API int cublasGetMathMode(void *h, int *mode) { *mode = 0; return 0; }
API int cublasGetPointerMode_v2(void *h, int *mode) { *mode = 0; return 0; }

/* ---- versions and messages ---- */
API size_t cudnnGetVersion(void) { return 90000; }
API size_t cudnnGetCudartVersion(void) { return 13000; }
API size_t cublasLtGetVersion(void) { return 130100; }
API int cudnnGetProperty(int which, int *v) { *v = which == 0 ? 9 : 0; return 0; }
API int ncclGetVersion(int *v) { *v = 22907; return 0; }
API int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
API int nvrtcGetPTXSize(void *p, size_t *n) { *n = 16; return 0; }
API int nvrtcGetCUBINSize(void *p, size_t *n) { *n = 16; return 0; }
API int nvrtcGetProgramLogSize(void *p, size_t *n) { *n = 1; return 0; }
API int nvrtcGetLoweredName(void *p, const char *expression, const char **name) { *name = "nvrtc"; return 0; }
#define SAYS(name) API const char *name(void *h) { return "error on paper"; }
SAYS(nvrtcGetErrorString) SAYS(ncclGetErrorString) SAYS(ncclGetLastError) SAYS(cudnnGetErrorString)
API void cudnnGetLastErrorString(char *s, size_t n) { if (n) *s = 0; }

/* ---- sizes of workspaces ---- */
#define WORKSPACE(name) API int name(void *h, int m, int n, void *a, int step, int *size) { *size = 64; return 0; }
WORKSPACE(cusolverDnSgeqrf_bufferSize) WORKSPACE(cusolverDnDgeqrf_bufferSize)
API int cusolverDnXgeqrf_bufferSize(void *h, void *p, int64_t m, int64_t n, int ta, void *a, int64_t step, int tt, void *t, int c, size_t *device, size_t *host) {
  *device = *host = 64;
  return 0;
}

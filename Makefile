VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/installed

.PHONY: install demo test plain-tests shape-tests thorough clusters lint docs dist notebook harness gpu-check gpu soak bench clean

install: $(STAMP)

# Bytecode is written when a module is first imported: compiling all seventeen thousand files would take a minute, and the
# suite imports a fifth of them.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e ".[dev]"
	touch $(STAMP)

# The main job: train, watch the table, read the ranking. Its last lines say what was asked, what was found and what is open.
demo: $(STAMP)
	$(BIN)/addnorm run demo --out runs/demo
	$(BIN)/addnorm rank runs/demo

# Python's bytecode, and pytest's of rewritten assertions, is kept whatever the environment says: four processes collect the
# same tests, and each would compile them anew for ten seconds.
export PYTHONDONTWRITEBYTECODE :=

# Everything CI runs. Lint works beside the tests, and its output follows theirs. The tests run in two sessions: the shape
# checker (jaxtyping, beartype) multiplies the time of all that computes with tensors, and torch's tracers cannot see
# through it, so it is on only where shapes are the subject. Workers take neighbouring tests: a module's fixtures are made
# once, save where an idle worker takes over the rest of the other's list.
test: $(STAMP)
	@$(MAKE) --no-print-directory lint > $(VENV)/lint.log 2>&1 & lint=$$!; \
	$(MAKE) --no-print-directory --keep-going plain-tests shape-tests; tests=$$?; \
	wait $$lint; lint=$$?; cat $(VENV)/lint.log; exit $$((tests | lint))

PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --durations 50
# The tier that one session adds to what `make test` samples: CI runs both together, and so imports and makes fixtures once.
TIER := and not thorough
SHAPES := tests/contracts tests/equivalence tests/golden tests/model tests/shapes

plain-tests: $(STAMP)
	JAXTYPING_DISABLE=1 $(PYTEST) -m "not shapes and not gpu and not soak $(TIER)"

shape-tests: $(STAMP)
	$(PYTEST) $(SHAPES) -m "shapes and not gpu and not soak" --jaxtyping-packages=addnorm,beartype.beartype

# The cases that `make test` samples: products of settings, whole families of models, programs of other libraries.
thorough: $(STAMP)
	JAXTYPING_DISABLE=1 $(PYTEST) -m "thorough and not gpu and not soak"

# Real clusters of two nodes (Slurm, Ray) and runs of several processes; `make test` and `make thorough` together have them too.
clusters: $(STAMP)
	JAXTYPING_DISABLE=1 $(PYTEST) -m "(slurm or ray or ranks) and not gpu and not soak"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Executes the notebooks of docs/notebooks and writes them as pages into build/notebooks, which git ignores. `make thorough` has
# this as a test.
notebook: $(STAMP)
	$(BIN)/python docs/notebook.py

# lm-evaluation-harness on exported runs. Its packages, more than 300 MB, are installed on request alone.
harness: $(STAMP)
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e ".[dev,harness]"
	$(BIN)/python -m pytest tests/hugging_face/test_hf_lm_eval.py

# What a GPU would meet, on a machine without one: devices, waits, launches, memory, kernels compiled for every card. Makes
# .venv-gpu at first (torch's CUDA build, 0.8 GB to download); without gcc or the wheel it says so and is skipped.
gpu-check: $(STAMP)
	$(BIN)/python tests/gpu_check/run.py

# On the first real GPU: kernels against the reference, then speed; writes docs/benchmarks-gpu.md after each step.
gpu: $(STAMP)
	$(BIN)/python benchmarks/first_gpu.py

# The site, offline, in build/docs/site. Warnings and broken links are errors.
docs: $(STAMP)
	JAXTYPING_DISABLE=1 $(BIN)/python docs/site/build.py

# Wheel and sdist, each tried in an environment of its own: the first items of docs/release.md.
dist: $(STAMP)
	$(BIN)/python docs/try_release.py

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak

clean:
	rm -rf $(VENV)

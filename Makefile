VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/installed

.PHONY: install demo test lint soak bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	touch $(STAMP)

# The main job: train, watch the table, read the ranking.
demo: $(STAMP)
	$(BIN)/addnorm run residual-scores --out runs/demo
	$(BIN)/addnorm rank runs/demo
	@echo "The page: $(BIN)/addnorm watch runs/demo"

# Everything CI runs. Shapes are checked in the first session; torch's tracers cannot see through the checker, so what
# exports or compiles runs in a second one without it.
test: lint
	$(BIN)/python -m pytest -n 2 -m "not compiled and not gpu and not soak" --jaxtyping-packages=addnorm,beartype.beartype
	JAXTYPING_DISABLE=1 $(BIN)/python -m pytest -n 2 -m "compiled and not gpu and not soak"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak

clean:
	rm -rf $(VENV)

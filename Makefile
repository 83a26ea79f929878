# `make demo` and `make test` need nothing but python3 and a package registry: they make .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types check bench docs wheel clean

demo: $(VENV)/.installed
	$(BIN)/mnemon demo --out out/demo

# a process for each core, each with one thread
test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

check: test lint types

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

wheel: $(VENV)/.installed
	$(BIN)/python -m build --wheel --outdir dist

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything runs from a bare clone: the first target to need it makes the virtual environment.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
STAMP  := $(VENV)/.installed

.PHONY: demo test test-all lint docs bench clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

## Match handwritten digits across three rotations; tables on the screen, figures in demo/.
demo: $(STAMP)
	$(RUN) -m case_studies.rotated_digits --out demo

## Lint, types and every test but the long ones.
test: $(STAMP) lint
	$(RUN) -m pytest -n 2 --dist worksteal -m "not slow"

## All tests: calibration of whole models and other long runs too.
test-all: $(STAMP) lint
	$(RUN) -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

## The documentation site, in build/docs. Pages with code cells are run, and kept until they change.
docs: $(VENV)/.installed-docs
	$(RUN) -m sphinx -W --keep-going -d build/doctrees docs build/docs

$(VENV)/.installed-docs: $(STAMP)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

## Every benchmark, one after the other, on an otherwise idle machine.
bench: $(STAMP)
	for script in benchmarks/[a-z]*.py; do $(RUN) $$script || exit 1; done

clean:
	rm -rf $(VENV) demo build docs/generated .pytest_cache .ruff_cache .mypy_cache

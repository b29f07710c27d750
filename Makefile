# Everything runs from a bare clone: the first target to need it makes the virtual environment.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
STAMP  := $(VENV)/.installed

.PHONY: demo test test-all test-oldest lint docs links package bench clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

## Match handwritten digits across three rotations; tables on the screen, figures in demo/.
demo: $(STAMP)
	$(RUN) -m case_studies.rotated_digits --out demo

## Lint, types and every test but the long ones.
test: $(STAMP) lint
	$(RUN) -m pytest -n 2 --dist worksteal --timeout 600 -m "not slow"

## All tests: calibration of whole models and other long runs too.
test-all: $(STAMP) lint
	$(RUN) -m pytest -n 2 --dist worksteal --timeout 3600

## The core tests with the oldest supported dependencies (tests/oldest.txt), without the optional ones.
## They have no wheels for new Pythons: PYTHON312 says where a Python 3.12 is.
PYTHON312 ?= python3.12
OLDEST_TESTS := tests/core tests/numerics tests/matching tests/test_metrics.py tests/test_serving.py
test-oldest: $(VENV)-oldest/.installed
	NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)-oldest/cache $(VENV)-oldest/bin/python -m pytest -m "not slow" $(OLDEST_TESTS)

$(VENV)-oldest/.installed: pyproject.toml tests/oldest.txt
	$(PYTHON312) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint tests/oldest.txt --editable . pytest hypothesis
	touch $@

## Wheel and source archive, in dist/; each is installed in a fresh environment and imported.
package: $(STAMP)
	$(RUN) -m pip install --quiet --disable-pip-version-check build
	rm -rf dist && $(RUN) -m build --outdir dist .
	for file in dist/*.whl dist/*.tar.gz; do \
		rm -rf $(VENV)-fresh && $(PYTHON) -m venv $(VENV)-fresh && \
		$(VENV)-fresh/bin/python -m pip install --quiet --disable-pip-version-check $$file && \
		(cd / && $(CURDIR)/$(VENV)-fresh/bin/python -c "import pm_match; print(pm_match.__version__)" && \
		$(CURDIR)/$(VENV)-fresh/bin/pm-match --help > /dev/null) || exit 1; \
	done

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

## The documentation site, in build/docs. Pages with code cells are run, and kept until they change.
docs: $(VENV)/.installed-docs
	$(RUN) -m sphinx -W --keep-going -d build/doctrees docs build/docs
	$(RUN) docs/check_links.py build/docs

## Links of the site to other sites too, if there is a network.
links: docs
	$(RUN) -m sphinx -b linkcheck -d build/doctrees docs build/links

$(VENV)/.installed-docs: $(STAMP)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

## Every benchmark, one after the other, on an otherwise idle machine.
bench: $(STAMP)
	for script in benchmarks/[a-z]*.py; do $(RUN) $$script || exit 1; done

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-fresh demo build dist docs/generated .pytest_cache .ruff_cache .mypy_cache

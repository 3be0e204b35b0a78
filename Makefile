# Everything a developer runs, and everything CI runs. Each target does its own set-up.
# docs/testing.md says what the tests need and how long they take.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := .cache/demo
DEMO_VENV := .cache/demo-venv
COMPUTE := .cache/compute
DOCS_VENV := .cache/docs-venv
# Tests also wait, so three more than there are cores, but not more than eight.
JOBS ?= $(shell cores=$$(nproc); echo $$((cores < 6 ? cores + 3 : 8)))
# One fewer where containers, booted machines and browsers run beside the tests.
JOBS_MORE ?= $(shell echo $$(($(JOBS) - 1)))
# In a folder that cannot be written to, pytest keeps no cache.
PYTEST = $(BIN)/python -m pytest $(shell test -w . || echo -p no:cacheprovider)
# Compiled modules are kept, and output is buffered, whatever the caller's Python is set to: without
# the first, each of thousands of processes would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
EVERYWHERE := not slow and not docker and not boot and not outside

.PHONY: demo docs test test-more check soak steady coverage mutants test-peers lint types bench bench-compute bench-peers clean

demo: $(DEMO_VENV)/.installed  ## run the example to its picture
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@cp -r examples/reconstruction/. $(DEMO)/
	PATH="$(CURDIR)/$(DEMO_VENV)/bin:$$PATH" $(DEMO_VENV)/bin/batchyard run $(DEMO)/pipeline.yaml --no-gpu
	@echo "the picture: $(DEMO)/work/figure/reconstruction.png"

test: $(STAMP)  ## all tests that need nothing but this machine, in about 5 minutes on two cores
	$(PYTEST) -n $(JOBS) --dist worksteal -m "$(EVERYWHERE)" --durations 10 --durations-min 5 $(PYTEST_ARGS)

test-more: $(STAMP)  ## the tests that `make test` leaves out, and a random search of the properties
	$(PYTEST) -n $(JOBS_MORE) --dist loadfile -m "not ($(EVERYWHERE)) or property" --hypothesis-profile search $(PYTEST_ARGS)

check: lint types test test-more  ## everything; what needs a tool that is missing is skipped and says so

soak: $(STAMP)  ## random search, pipelines and kills, SOAK_MINUTES long (default 60)
	.ci/soak $(SOAK_MINUTES)

steady:  ## `make test` ten times, under load and in odd surroundings: .ci/steady says which
	.ci/steady $(STEADY_CASES)

coverage: $(STAMP)  ## `make test` with coverage, the subprocesses too; the report is printed
	@rm -rf .cache/coverage && mkdir -p .cache/coverage
	@# Without the tests of what a command imports: coverage imports more in each process.
	$(BIN)/python -m coverage run -m pytest -n $(JOBS) --dist worksteal -m "$(EVERYWHERE)" \
		--deselect tests/unit/test_imports.py \
		--deselect tests/unit/test_progress.py::test_the_display_loads_no_engine_and_no_database $(PYTEST_ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

mutants:  ## a sample of mutants of batch/, engines/ and infra/, at most an hour
	$(PYTHON) .ci/mutants.py $(MUTANTS)

test-peers: $(STAMP)  ## other people's clients through the endpoint; installs them from PyPI under .cache/peers
	.ci/docker-engine
	BATCHYARD_REQUIRE_DOCKER=1 $(PYTEST) tests/peers $(PYTEST_ARGS)

docs: $(DOCS_VENV)/.installed  ## the documentation as a site, with references from the program
	$(DOCS_VENV)/bin/python docs/generate_site.py .cache/docs
	$(DOCS_VENV)/bin/sphinx-build -q -W --keep-going .cache/docs .cache/site
	@echo "the front page: .cache/site/index.html"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)  ## ours beside the peers, ratios printed
	$(BIN)/python benchmarks/dispatch.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/endpoint.py
	$(BIN)/python benchmarks/aws_calls.py
	$(BIN)/python benchmarks/ui.py
	$(BIN)/python benchmarks/sampling.py
	-$(BIN)/python benchmarks/hand_out.py
	@$(MAKE) --no-print-directory bench-compute

bench-compute: $(COMPUTE)/.installed  ## the CPU side of `batchyard bench` beside the libraries called directly
	$(COMPUTE)/bin/python benchmarks/compute.py $(COMPUTE_ARGS)

bench-peers: $(STAMP)  ## calls of AWS Batch that other people's clients make, beside ours; installs them under .cache/peers
	-.ci/docker-engine
	$(BIN)/python benchmarks/peer_calls.py

# Without compiling what is never imported: that would take longer than the download.
$(DEMO_VENV)/.installed: pyproject.toml hatch_build.py src/batchyard/embedded/short_runs.c
	@$(NEEDS_PYTHON)
	$(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile -e '.[examples]'
	@touch $@

$(DOCS_VENV)/.installed: pyproject.toml
	@$(NEEDS_PYTHON)
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

$(COMPUTE)/.installed: pyproject.toml benchmarks/libraries.txt
	$(PYTHON) -m venv $(COMPUTE)
	$(COMPUTE)/bin/pip install --quiet --disable-pip-version-check -e '.[bench]' -r benchmarks/libraries.txt
	@touch $@

$(STAMP): pyproject.toml hatch_build.py src/batchyard/embedded/short_runs.c
	@$(NEEDS_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@# Compiles the tests once: else each process of `make test` does so for itself, at the same time.
	@$(PYTEST) --collect-only -q >/dev/null || true
	@touch $(STAMP)

NEEDS_PYTHON = $(PYTHON) -c 'import sys; sys.exit("batchyard needs Python 3.11 or newer; name it with make PYTHON=...") if sys.version_info < (3, 11) else None'

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants

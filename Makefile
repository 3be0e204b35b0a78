# Everything a developer runs, and everything CI runs. Each target does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := .cache/demo
COMPUTE := .cache/compute

.PHONY: demo test test-peers lint types check bench bench-compute bench-peers clean

demo: $(STAMP)  ## run the example to its picture
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@cp -r examples/reconstruction/. $(DEMO)/
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/batchyard run $(DEMO)/pipeline.yaml --no-gpu
	@echo "the picture: $(DEMO)/work/figure/reconstruction.png"

test: $(STAMP)  ## all tests; those that need a Docker engine say so where none answers
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-peers: $(STAMP)  ## other people's clients through the endpoint; installs them from PyPI under .cache/peers
	.ci/docker-engine
	BATCHYARD_REQUIRE_DOCKER=1 $(BIN)/python -m pytest tests/peers $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

bench: $(STAMP)  ## ours beside the peers, ratios printed
	$(BIN)/python benchmarks/dispatch.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/endpoint.py
	$(BIN)/python benchmarks/aws_calls.py
	@$(MAKE) --no-print-directory bench-compute

bench-compute: $(COMPUTE)/.installed  ## the CPU side of `batchyard bench` beside the libraries called directly
	$(COMPUTE)/bin/python benchmarks/compute.py $(COMPUTE_ARGS)

bench-peers: $(STAMP)  ## calls of AWS Batch that other people's clients make, beside ours; installs them under .cache/peers
	-.ci/docker-engine
	$(BIN)/python benchmarks/peer_calls.py

$(COMPUTE)/.installed: pyproject.toml benchmarks/libraries.txt
	$(PYTHON) -m venv $(COMPUTE)
	$(COMPUTE)/bin/pip install --quiet --disable-pip-version-check -e '.[bench]' -r benchmarks/libraries.txt
	@touch $@

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("batchyard needs Python 3.11 or newer; say which with make PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

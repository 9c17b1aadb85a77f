# Two commands matter: `make run` shows the whole way once, `make test` proves it. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')
CODE := src tests bench examples

# The tests mostly wait (for sessions that end, for programs in other languages): more processes than cores pay off.
WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest
PARALLEL = $(PYTEST) --numprocesses $(WORKERS)
SEEDS ?= 10000
CLUSTER_SEEDS ?= 5000

# Every broker and command that a test starts would compile its modules anew: three times the CPU time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run archive collected check format unit test sim soak bench bench-quick build clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml setup.py $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[pipelines,dev]'
	touch $@

run: $(READY) ## start a broker, ship an access log, clean it on Spark, show the result
	@$(BIN)/python examples/access_log/run.py

check: $(READY) ## style, types and import rules
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

unit: $(READY) ## the tests that need no broker process and no other language
	$(PARALLEL) tests/unit tests/scenarios tests/fuzz tests/sim

test: $(READY) ## check, then every test, in WORKERS=4 processes
	@$(MAKE) --jobs=2 --output-sync check archive collected
	$(PARALLEL)

collected: $(READY) ## the tests compiled once, not in each process
	@found=$$($(PYTEST) --collect-only -qq 2>&1) || { echo "$$found"; exit 1; }

archive: $(READY) ## Spark's class archive, which the first run of a pipeline would make behind itself
	$(BIN)/python -m barnabas.pipelines.class_archive

sim: $(READY) ## the simulations of a whole broker and of a cluster in SEEDS=10000 histories each
	$(PARALLEL) tests/sim/broker tests/sim/cluster --seeds $(SEEDS) --cluster-seeds $(SEEDS) --timeout 0

soak: $(READY) ## the tests that need minutes each: fault runs of real clients, one after another
	$(PARALLEL) tests/sim/cluster --cluster-seeds $(CLUSTER_SEEDS) --timeout 3600
	$(PYTEST) -m soak --timeout 3600

bench: $(READY) ## measure against rivals; tables and plots in bench/results
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench

bench-quick: $(READY) ## the same with short runs
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench --quick

build: ## a wheel in dist/
	python3 -m venv .wheel-env
	.wheel-env/bin/python -m pip install --quiet build
	.wheel-env/bin/python -m build --wheel

clean: ## remove what builds have made
	rm -rf build dist .wheel-env src/*.egg-info
	find src -name '*.so' -delete
	find src -name '*.c' -delete

# Two commands matter: `make run` shows a broker and a pipeline, `make test` runs every test. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
DEVELOPMENT := .[pipelines,dev]
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')
CODE := src tests bench examples

# Tests wait a quarter of their time (for sessions that end, for programs in other languages): more processes than cores pay
# off. With six, two cores were busy for 87 % of a run, with eight for 97 %.
WORKERS ?= 8
PYTEST = $(BIN)/python -m pytest
PARALLEL = $(PYTEST) --numprocesses $(WORKERS)
SEEDS ?= 10000
CLUSTER_SEEDS ?= 5000
LINK_SEEDS ?= 1000

# Every broker and command that a test starts would compile its modules anew: three times the CPU time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run archive collected check format unit test tests sim soak bench bench-quick build clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# uv downloads, unpacks and builds at the same time what pip does one after the other. pip does the work where uv cannot be
# had, or where only pip is told of a mirror.
define install
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --disable-pip-version-check install --quiet uv && \
		$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '$(1)' || \
		$(BIN)/python -m pip install --quiet --editable '$(1)'
endef

# `run` needs neither the tools of developers nor what only tests use: they come with the first target that needs them.
$(RUNS): pyproject.toml setup.py $(SOURCES)
	$(call install,.[pipelines])
	touch $@

$(READY): pyproject.toml setup.py $(SOURCES)
	$(call install,$(DEVELOPMENT))
	touch $(RUNS) $@

run: $(if $(wildcard $(READY)),$(READY),$(RUNS)) ## start a broker, send it an access log, process the log on Spark, show the result
	@$(BIN)/python examples/access_log/run.py

check: $(READY) ## check style, types and import rules
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## format the code, and let ruff fix what it can
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

unit: $(READY) ## run the tests that need no broker process and no other language
	$(PARALLEL) tests/unit tests/scenarios tests/fuzz tests/sim

# At the same time, since neither alone keeps two cores busy from its beginning to its end.
test: $(READY) ## check, and run every test, in WORKERS=8 processes
	@$(MAKE) --jobs=3 check tests

tests: archive collected
	env -u MAKEFLAGS $(PARALLEL)

collected: $(READY) ## compile the tests once, not in each process
	@found=$$($(PYTEST) --collect-only -qq 2>&1) || { echo "$$found"; exit 1; }

archive: $(READY) ## make Spark's class archive now, which the first pipeline would make in the background
	$(BIN)/python -m barnabas.pipelines.spark.session.class_archive

sim: $(READY) ## simulate a whole broker and a whole cluster, with SEEDS=10000 seeds each
	$(PARALLEL) tests/sim/broker tests/sim/cluster tests/sim/links --seeds $(SEEDS) --cluster-seeds $(SEEDS) --link-seeds $(LINK_SEEDS) --timeout 0

soak: $(READY) ## run the tests that take minutes: clusters in simulation, faults under real clients
	$(PARALLEL) tests/sim/broker tests/sim/cluster tests/sim/links --seeds $(SEEDS) --cluster-seeds $(CLUSTER_SEEDS) --link-seeds $(LINK_SEEDS) --timeout 3600
	BARNABAS_TEST_THOROUGH=1 $(PARALLEL) tests/unit tests/fuzz tests/clients
	BARNABAS_TEST_THOROUGH=1 $(PYTEST) -m soak --timeout 3600

bench: $(READY) ## measure Barnabas and its rivals; tables and plots go to bench/results
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench

bench-quick: $(READY) ## run the benchmarks with short runs
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench --quick

build: ## build a wheel in dist/
	python3 -m venv .wheel-env
	.wheel-env/bin/python -m pip install --quiet build
	.wheel-env/bin/python -m build --wheel

clean: ## remove the results of builds
	rm -rf build dist .wheel-env src/*.egg-info
	find src -name '*.so' -delete
	find src -name '*.c' -delete

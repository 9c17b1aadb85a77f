# Two commands matter: `make run` shows the whole way once, `make test` proves it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')

.PHONY: help run test check unit soak bench bench-quick build clean

help:
	@echo "make run         start a broker, ship an access log, clean it on Spark, show the result"
	@echo "make test        style, types, import rules and every test"
	@echo "make bench       measure against rivals; tables and plots in bench/results"
	@echo "make soak        long fault runs"
	@echo "make build       a wheel in dist/"

$(READY): pyproject.toml setup.py $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[pipelines,dev]'
	touch $@

run: $(READY)
	@$(BIN)/python examples/access_log/run.py

check: $(READY)
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/python -m pytest tests/unit tests/scenarios tests/sim

test: check
	$(BIN)/python -m pytest

soak: $(READY)
	$(BIN)/python -m pytest -m soak --timeout=3600

bench: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench

bench-quick: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m bench --quick

build: $(READY)
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --wheel

clean:
	rm -rf build dist src/*.egg-info
	find src -name '*.so' -delete
	find src -name '*.c' -delete

# What people, hooks and CI call. `make demo` and `make test` set up everything they need in .venv.
#
# PYTHON      the interpreter to build .venv with (3.11 to 3.13)
# TORCH_ARGS  options for installing torch, e.g. the index of CPU builds that pytorch.org names

PYTHON ?= python3
TORCH_ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage lint types bench docs clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/setup  ## make .venv with everything that development needs

demo: .venv/demo  ## compare the losses on the built-in problems: a table and demo/comparison.png
	$(BIN)/digitloss compare --preset quick --out demo

test: .venv/setup  ## run the whole test suite
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --cov --cov-report=term-missing:skip-covered

coverage:  ## check the line coverage of the last test run
	$(BIN)/coverage report --include='src/digitloss/numbers/*,src/digitloss/losses/*' --fail-under=100
	$(BIN)/coverage report --fail-under=90

lint: .venv/setup  ## check style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/setup  ## check types
	$(BIN)/mypy

bench: .venv/setup  ## measure time and memory of every loss against cross-entropy (about 40 minutes)
	$(BIN)/digitloss bench --preset full --out bench

docs: .venv/setup  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

clean:  ## remove what the other targets made
	rm -rf .venv build dist site demo bench .coverage

.venv/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	  f"digitloss needs Python 3.11 to 3.13, $(PYTHON) is {v[0]}.{v[1]}: set PYTHON=python3.12 or the like")'
	$(PYTHON) -m venv .venv
	$(PIP) install --quiet --constraint constraints.txt pip
	touch $@

.venv/demo: .venv/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt torch $(TORCH_ARGS)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[all]'
	touch $@

.venv/setup: .venv/demo
	$(PIP) install --quiet --constraint constraints.txt --group dev
	touch $@

# Every target makes `.venv` itself and is safe to repeat. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
UV_VERSION := 0.13.8
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE := $(VENV)/docs
CLASSES := $(VENV)/spark-classes.jsa
AZURITE := node_modules/.azurite
AZURITE_VERSION := 3
EVERY := 6
THIRD ?= commit
LONGEST := --durations=25 --durations-min=5
DEMO := $(CURDIR)/demo
UI_PORT ?= 3000
export DAGSTER_HOME ?= $(DEMO)/dagster
EXTRAS := --extra postgres --extra mysql --extra connect --extra oss --extra attestation --extra polars --extra iceberg --extra ui --extra demo
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11

.PHONY: help install demo ui test test-slow test-nightly test-clouds test-python test-newest test-lowest test-resolved test-browser test-wheel test-wheel-all proof lint audit format docs reference pictures bench lock proto clean

help:  ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

install: $(STAMP)  ## Make .venv with every pinned dependency

$(BIN)/uv:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)

$(STAMP): requirements/dev.txt pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q snapshot_assets # where PYTHONDONTWRITEBYTECODE is set, each start would compile anew
	touch $@

# An instance that has its own settings keeps them.
$(DAGSTER_HOME)/dagster.yaml: | install
	$(BIN)/python -c "from snapshot_assets.demo import make_instance; make_instance()"

demo: install $(DAGSTER_HOME)/dagster.yaml  ## Export real flight data to a verified snapshot below ./demo, and check it
	$(BIN)/python -m snapshot_assets.demo

# In the folder of the instance: Dagster warns of another dagster.yaml where it starts.
ui: install $(DAGSTER_HOME)/dagster.yaml  ## Open Dagster's UI on the demo's instance (http://127.0.0.1:3000)
	cd $(DAGSTER_HOME) && SNAPSHOTS_CONFIG=$${SNAPSHOTS_CONFIG:-$(CURDIR)/snapshots.yaml} VIRTUAL_ENV=$(abspath $(VENV)) \
		$(abspath $(BIN))/dg dev --workspace $(CURDIR)/workspace.yaml --host 127.0.0.1 --port $(UI_PORT)

# With the archive, each of the many JVMs of the tests starts seconds sooner; a Java that makes none runs them, too.
$(CLASSES): $(STAMP)
	-SNAPSHOTS_CLASS_ARCHIVE=$@ $(BIN)/snapshots warm-up

test: install $(CLASSES)  ## Run the quick tests
	$(BIN)/pytest -q -n 2 --dist loadfile snapshot_assets_tests

# Two of three workers compute while one waits. The order is that of snapshot_assets_tests/gate.py: long ones first.
# pytest knows their option only where their folder is named.
SLOW = EVERY=$(EVERY) $(BIN)/pytest -q -n 3 -m slow --dist loadfile --no-loadscope-reorder $(LONGEST) snapshot_assets_tests

test-slow: install $(CLASSES)  ## Run a third of the long tests (THIRD=2: the second one)
	$(SLOW) --third $(THIRD)

test-nightly: install $(CLASSES)  ## Run all long tests (EVERY=1: strike faults at every call, not at every sixth)
	$(SLOW)

test-python: requirements/dev.txt  ## Install for another interpreter (PYTHON=python3.13), and run the tests that need no Spark
	$(MAKE) install VENV=.venv/$(notdir $(PYTHON))
	.venv/$(notdir $(PYTHON))/bin/pytest -q snapshot_assets_tests/format snapshot_assets_tests/plan \
		snapshot_assets_tests/storage/test_local.py snapshot_assets_tests/catalog/state \
		snapshot_assets_tests/databases/duckdb snapshot_assets_tests/test_package.py

# Resolved as `pip install` does: the locks are not used, and the tools of the tests are the newest.
test-newest:  ## Run the quick tests with the newest versions that are allowed
	$(MAKE) test-resolved VENV=.venv/newest RESOLUTION=highest

# PySpark 4.1.0 leaves sockets open, which Python reports.
test-lowest:  ## Run the quick tests with the lowest versions that are allowed
	$(MAKE) test-resolved VENV=.venv/lowest RESOLUTION=lowest-direct \
		TESTS="-W ignore::pytest.PytestUnraisableExceptionWarning $(TESTS)"

test-resolved: $(BIN)/uv
	$(BIN)/uv pip compile --quiet --upgrade --no-annotate --no-header --no-emit-index-url --resolution $(RESOLUTION) \
		pyproject.toml $(EXTRAS) -o $(VENV)/resolved.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --override $(VENV)/resolved.txt -r $(VENV)/resolved.txt --group dev
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/pytest -q -n 2 --dist loadfile $(TESTS)

# Azurite, for the tests of Azure; without npm they are skipped.
$(AZURITE):
	! command -v npm >/dev/null || npm install --silent --no-save --no-audit --no-fund azurite@$(AZURITE_VERSION)
	mkdir -p $(@D)
	touch $@

test-clouds: install $(AZURITE)  ## Run the tests of object storage and bad networks
	$(BIN)/pytest -q -m clouds

test-browser: install  ## Run the tests of Dagster's UI in a headless Chromium
	$(BIN)/pytest -q -m browser

test-wheel: install  ## Build the wheel, install it alone, and export and import with it
	$(BIN)/python -m snapshot_assets_tests.wheel

test-wheel-all: install  ## Use the wheel also with the newest versions of everything, and in projects made by dg
	$(BIN)/python -m snapshot_assets_tests.wheel --all

proof: install  ## Search the models of the commit protocol by Spin: all states of small scopes (docs/protocol.md)
	$(BIN)/python -m snapshot_assets_tests.proof.models

lint: install  ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m snapshot_assets_tests.audit

audit: install  ## Look for known vulnerabilities in the pinned dependencies
	$(BIN)/python -m snapshot_assets_tests.audit

format: install  ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(SITE)/.installed: requirements/docs.txt | $(BIN)/uv
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(SITE)
	$(BIN)/uv pip install --quiet --python $(SITE)/bin/python --require-hashes -r requirements/docs.txt
	touch $@

docs: $(SITE)/.installed  ## Build the documents as a site below ./site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict

reference: install  ## Write the pages of docs/reference that are made from the code
	$(BIN)/python -m snapshot_assets_tests.documents.reference

pictures: install  ## Take the pictures of the documents: needs Chromium
	$(BIN)/python -m snapshot_assets_tests.documents.pictures

bench: install  ## Compare the export with other tools, interleaved
	$(BIN)/python -m benchmarks.export

lock: $(BIN)/uv  ## Resolve the dependencies into requirements/
	$(LOCK) pyproject.toml $(EXTRAS) --group dev -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra postgres --extra mysql --extra connect --extra oss --extra polars --extra iceberg -c requirements/dev.txt -o requirements/run.txt
	$(LOCK) --group docs -o requirements/docs.txt

proto: install  ## Generate the log's message classes from log.proto
	cd snapshot_assets/format && ../../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. log.proto

clean:  ## Remove the demo and caches
	rm -rf $(DEMO) site .pytest_cache .mypy_cache .ruff_cache .hypothesis

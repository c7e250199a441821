# Two commands: `make demo` and `make test`. Both make .venv first, with uv when it is on the PATH, else with venv and pip.
PYTHON ?= python3
BASE ?= HEAD
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

ifdef UV
create := uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
install := uv pip install --quiet --python $(BIN)/python -c constraints.txt
else
create := $(PYTHON) -m venv $(VENV)
install := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
endif

# A file's tests stay together: what they share is made once. They wait more than they compute, so four run on two cores.
parallel := --numprocesses 4 --dist loadfile

# Where statements to the database are: what an older PostgreSQL could answer otherwise.
stored := tests/retrievers tests/agent/records/test_trace.py

.PHONY: demo test check dev test-fast test-adapters lint docs schema clean

demo: $(VENV)/.installed
	@$(BIN)/signalbox demo

test: $(VENV)/.tools lint
	$(BIN)/python -m pytest $(parallel)
	SIGNALBOX_TEST_POSTGRES=16 $(BIN)/python -m pytest $(parallel) -m database $(stored)

# What a change touches: `make check`, or `make check BASE=main` for all commits of a branch.
check: $(VENV)/.tools lint
	touched=$$(.ci/touched $(BASE)); [ -z "$$touched" ] || $(BIN)/python -m pytest -q -x $(parallel) -m "not slow" $$touched || [ $$? -eq 5 ]  # 5: all of them are slow

# Once per checkout: before each commit git looks at the style of what is committed.
dev: $(VENV)/.tools
	git config core.hooksPath .ci/hooks

test-fast: $(VENV)/.tools
	$(BIN)/python -m pytest -x -q -m "not database"

# The adapters against the frameworks themselves, some 60 packages that nothing else needs.
test-adapters: $(VENV)/.tools
	@$(install) -e '.[test,adapters]'
	$(BIN)/python -m pytest -q tests/agent/test_integrations.py

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The pages of docs/ as a site in build/site; a warning is an error.
docs: $(VENV)/.installed
	@$(install) -e '.[site]'
	$(BIN)/mkdocs build --strict

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "signalbox needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into $(VENV) (once, about a minute) ..."
	@$(create)
	@$(install) -e '.[eval]'
	@touch $@

$(VENV)/.tools: $(VENV)/.installed
	@echo "Installing the test tools ..."
	@$(install) -e '.[test]'
	@touch $@

# After a new migration: the snapshot that a test compares with.
schema: $(VENV)/.tools
	SIGNALBOX_WRITE_SCHEMA=1 $(BIN)/python -m pytest -q tests/retrievers/test_migrate.py -k committed_schema

clean:
	rm -rf $(VENV) build .schemathesis .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

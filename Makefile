# Two commands: `make demo` and `make test`. Both make .venv first, with uv when it is on the PATH, else with venv and pip.
# `make dist` builds and checks what is released.
PYTHON ?= python3
# Tests start hundreds of processes: without byte code on disk each of them compiles the whole tree.
unexport PYTHONDONTWRITEBYTECODE
BASE ?= HEAD
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

# install_in: install into the environment $(1), with the pip of $(2) if $(1) has none.
ifdef UV
create := uv venv --quiet --allow-existing --python $(PYTHON)
create_bare := $(create)
install_in = uv pip install --quiet --compile-bytecode --python $(1)/bin/python -c constraints.txt
else
create := $(PYTHON) -m venv
create_bare := $(create) --without-pip
pip_for = $(if $(2),$(2)/bin/python -m pip --python $(1)/bin/python,$(1)/bin/python -m pip)
install_in = $(pip_for) install --quiet --disable-pip-version-check -c constraints.txt
endif
install := $(call install_in,$(VENV))
comma := ,

# make_environment: the environment of this checkout, with the extras $(1).
define make_environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "signalbox needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
@echo "Installing into $(VENV) (once, about a minute) ..."
@$(create) $(VENV)
@$(install) -e '.[$(1)]'
endef

# A file's tests stay together: what they share is made once. They wait more than they compute, so four run on two cores.
parallel := --numprocesses 4 --dist loadfile --no-loadscope-reorder

# Where statements to the database are: what an older PostgreSQL could answer otherwise. The slow tests there, most of
# which kill processes, send the same statements as the others.
stored := tests/retrievers tests/agent/records/test_trace.py

.PHONY: demo test check dev test-fast test-adapters lint docs dist schema clean

demo: $(VENV)/.installed
	@$(BIN)/signalbox demo

test: $(VENV)/.tools lint
	$(BIN)/python -m pytest $(parallel)
	SIGNALBOX_TEST_POSTGRES=16 $(BIN)/python -m pytest $(parallel) -m "database and not slow" $(stored)

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

# Wheel and source distribution in dist/, checked, with a bill of materials and the licences of what the wheel needs. The
# environment build/user holds the wheel and its dependencies alone, so that `build/user/bin/signalbox demo` tries it.
dist: build/tools/.installed
	rm -rf dist build/user
	build/tools/bin/python -m hatchling build -d dist
	build/tools/bin/twine check --strict dist/*
	$(PYTHON) .ci/contents dist/*.whl dist/*.tar.gz
	$(create_bare) build/user
	$(call install_in,build/user,build/tools) dist/*.whl
	build/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.json build/user/bin/python
	build/tools/bin/pip-licenses --python build/user/bin/python --format markdown --output-file dist/licences.md

build/tools/.installed: Makefile constraints.txt
	$(create) build/tools
	$(call install_in,build/tools) hatchling twine cyclonedx-bom pip-licenses
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call make_environment,eval)
	@touch $@

# All at once: a second run of pip would look at every package again.
$(VENV)/.tools: pyproject.toml constraints.txt
	$(call make_environment,eval$(comma)test)
	@touch $(VENV)/.installed $@

# After a new migration: the snapshot that a test compares with.
schema: $(VENV)/.tools
	SIGNALBOX_WRITE_SCHEMA=1 $(BIN)/python -m pytest -q tests/retrievers/test_migrate.py -k committed_schema

clean:
	rm -rf $(VENV) build dist .schemathesis .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

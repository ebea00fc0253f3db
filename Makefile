# Needs make and Python 3.11 or newer; everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo dev test faults chaos bench lint clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed-demo ## Paint six pictures and watch them
	@$(BIN)/ghostless demo $(ARGS)

dev: $(VENV)/installed-demo ## Run everything here until Ctrl-C; ARGS="--port 8080"
	@$(BIN)/ghostless dev $(ARGS)

test: $(VENV)/installed-test ## Run the tests; ARGS="-k demo" chooses
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

faults: $(VENV)/installed-test ## Try every fault of docs/faults.md that needs a test of its own, chaos included
	$(BIN)/python -m pytest tests/faults $(ARGS)

chaos: $(VENV)/installed-test ## Break things at random for a while; SECONDS=60 SEED=7
	PYTHONPATH=tests $(BIN)/python -m faults.chaos --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/installed-bench ## Measure beside other job runners, for ten minutes; ARGS="--help"
	@$(BIN)/python -m ghostless.benchmarks.peers $(ARGS)

lint: $(VENV)/installed-lint ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	PATH="$(CURDIR)/$(BIN):$$PATH" npx --yes --package typescript@5.9.3 tsc --noEmit --checkJs --strict --target es2022 --module es2022 \
		--moduleResolution bundler --lib es2023,dom,dom.iterable web/static/*.js

clean: ## Remove the environment, caches, and what demo and dev left here
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .ghostless demo-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is installed for each purpose; the types that pyright checks come from all of it.
EXTRAS_demo := demo
EXTRAS_test := test
EXTRAS_lint := test,lint
EXTRAS_bench := bench

# A stamp for each purpose: installed again when pyproject.toml changed.
$(VENV)/installed-%: pyproject.toml | $(BIN)/python
	@echo "installing what '$*' needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS_$*)]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || \
		{ echo "Python's venv module is missing; on Debian: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

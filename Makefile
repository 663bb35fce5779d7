# make ablation   everything, from raw frames to the report (CONFIG=config/smoke.yaml for another experiment)
# make demo       a small ablation in three minutes; opens its page if there is a browser
# make test       style, tests and documentation
# make kills      tests that stop, kill and resume trainings and workflows; CI runs `make test` and this
# make weights    only the baseline: results/default/weights contains its network and learners with a model card
# make landmarker MediaPipe and its model, for `faze gaze` and head poses of your own frames
# make studio     a page to change a network's gaze, head and appearance codes; needs npm once
# make servers    tests of a team's MLflow with PostgreSQL and S3, of its failures, and of results in S3
# make oldest     tests of the training with the oldest supported versions of torch and others
# make cluster    tests on a SLURM cluster of three nodes on this machine; needs root
# make chaos      the smoke ablation with random faults, which must not change results (MINUTES=30 SEED=1)
# make fuzz       hostile files for every parser (CASES=50000 for each)
# make docs       the documentation: docs/_build/index.html
# make ui         MLflow's page for the results
# Each creates .venv first if it is missing or outdated. Requires python3 (3.11-3.13, with venv) and, for speed, a C and a
# C++ compiler, for the kernels of faze and for torch.compile.

PYTHON ?= python3
CORES ?= all
CONFIG ?=
MINUTES ?= 30
SEED ?= 1
CASES ?= 50000

BIN := .venv/bin
INSTALLED := .venv/installed
LANDMARKER := face_landmarker.task
LANDMARKER_URL := https://storage.googleapis.com/mediapipe-models/face_landmarker/face_landmarker/float16/1/$(LANDMARKER)
LANDMARKER_SHA256 := 64184e229b263107bc2b804c6625db1341ff2bb731874b0bcc2fe6544e0bc9ff
BROWSER_RUNTIME := faze/studio/ort/ort.wasm.bundle.min.mjs
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Drop variables that point to another Python, or make pip install elsewhere than into .venv; keep indexes and proxies.
unexport PYTHONHOME PIP_TARGET PIP_PREFIX PIP_ROOT PIP_NO_DEPS PIP_DRY_RUN PIP_CONSTRAINT PIP_BUILD_CONSTRAINT \
	PIP_REQUIREMENT PIP_EDITABLE PIP_PYTHON
export PIP_USER := 0

.PHONY: ablation demo weights landmarker studio test lint unit kills compiled servers oldest workflow cluster chaos fuzz docs ui

ablation: $(INSTALLED)
	$(BIN)/snakemake --cores $(CORES) ablation $(VALUES)

# CONFIG is a file, whose name may contain spaces, quotes and dollar signs, or else a list of files or patterns. Snakemake
# would show a traceback for a missing file.
QUOTED = '$(subst ','\'',$(value CONFIG))'
LISTED = $(foreach name,$(value CONFIG),$(or $(wildcard $(name)),$(error CONFIG=$(value CONFIG): there is no such file)))
VALUES = $(if $(value CONFIG),--configfile $(if $(shell test -f $(QUOTED) && echo yes),$(QUOTED),$(LISTED)))

# Without a display nothing is opened, since a browser would use the terminal; failing to open it is not an error.
demo: PAGE := $(CURDIR)/results/demo/report/index.html
demo: $(INSTALLED)
	$(BIN)/snakemake ablation --cores $(CORES) --configfile config/demo.yaml --quiet rules
	@echo "the report of the demonstration: $(PAGE)"
	@test -z "$$DISPLAY$$WAYLAND_DISPLAY" || $(BIN)/python -m webbrowser "file://$(PAGE)" >/dev/null 2>&1 || true

weights: $(INSTALLED)
	$(BIN)/snakemake --cores $(CORES) weights $(VALUES)

# One of MediaPipe's dependencies replaces faze's OpenCV, so it is installed without them; faze has what it needs.
landmarker: $(INSTALLED) $(LANDMARKER)
	@$(BIN)/python -c 'import hashlib, sys; content = open("$(LANDMARKER)", "rb").read(); \
		sys.exit(hashlib.sha256(content).hexdigest() != "$(LANDMARKER_SHA256)" and "$(LANDMARKER): is damaged: remove it")'
	$(BIN)/python -m pip install --quiet --no-deps mediapipe==1.2.3

$(LANDMARKER): | $(INSTALLED)
	$(BIN)/python -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' $(LANDMARKER_URL) $@.part
	mv $@.part $@

studio: $(INSTALLED) $(BROWSER_RUNTIME)
	$(BIN)/python -m faze studio

# Two files of onnxruntime-web, which is not on PyPI.
$(BROWSER_RUNTIME):
	@command -v npm >/dev/null || { echo "make studio needs npm once, to download onnxruntime-web"; exit 1; }
	rm -rf build/studio && mkdir -p build/studio $(dir $@)
	npm pack --silent --pack-destination build/studio onnxruntime-web@1.30.0
	tar -xzf build/studio/*.tgz -C build/studio --strip-components 2 \
		package/dist/ort.wasm.bundle.min.mjs package/dist/ort-wasm-simd-threaded.wasm
	touch build/studio/*.wasm build/studio/*.mjs
	mv build/studio/*.wasm $(dir $@)
	mv build/studio/*.mjs $(dir $@)
	rm -r build/studio

test: lint unit workflow docs

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check --line-length 120 Snakefile workflow
	$(BIN)/lint-imports
	$(BIN)/codespell --skip docs/_build,faze/studio/ort Snakefile Makefile NOTICE CITATION.cff *.md benchmarks config docs envs examples faze profiles tests workflow
	$(BIN)/python tests/english.py *.md Snakefile benchmarks config docs examples faze profiles tests workflow

# One thread per process: two workers on two cores. Each starts with half of the tests, so that fixtures of a file are
# created once. Without npm, the tests of the studio are skipped.
unit: $(INSTALLED)
	-@test -e $(BROWSER_RUNTIME) || ! command -v npm >/dev/null || $(MAKE) --no-print-directory $(BROWSER_RUNTIME)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m "not workflow and not kills and not compiled and not cluster and not servers"

# Takes minutes without cached kernels, so it is not part of `test`.
compiled: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m compiled

# The tests start and stop PostgreSQL (Debian: postgresql), moto's S3 and MLflow, and also store an ablation's results in
# S3.
servers: $(INSTALLED)
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { echo "make servers needs Debian's postgresql"; exit 1; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[servers]'
	$(BIN)/pytest -m servers

# The files of a finding are kept in a folder, whose path is printed.
fuzz: $(INSTALLED)
	nice $(BIN)/python tests/fuzz --cases $(CASES)

# The oldest versions that pyproject.toml allows, in their own environment; PyPI's torch brings gigabytes of CUDA. Triton 3.6's
# interpreter, which runs GPU kernels on a CPU, fails with numpy 2.4.
oldest:
	$(PYTHON) -m venv .oldest
	.oldest/bin/python -m pip install --quiet torch==2.11.0 triton==3.6.0 numpy==2.4.0 scipy==1.17.0 h5py==3.16.0 \
		opencv-python-headless==5.0.0.93 pyyaml==6.0 filelock==4.2.0 pytest hypothesis
	PATH="$(CURDIR)/.oldest/bin:$(PATH)" sh benchmarks/gpu.sh --tiny --budget-s 3000 --out results/oldest
	OMP_NUM_THREADS=1 .oldest/bin/python -m pytest -m "not compiled" -k "not triton_kernels" tests/engine

workflow: $(INSTALLED)
	$(BIN)/pytest -n 2 --dist loadfile -m workflow

# Takes minutes, since each of them starts several processes. A worker runs whole files, for their fixtures.
kills: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m kills

# Needs root, and Debian's slurm-wlm and munge. Takes some twenty minutes on two cores, so it is not part of `test`.
cluster: $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt snakemake-executor-plugin-slurm
	$(BIN)/python tests/cluster/cluster.py $(BIN)/python -m pytest -m cluster tests/cluster -o faulthandler_timeout=1800

# As root, faults include full disks and read-only folders. Not part of `test`.
chaos: $(INSTALLED)
	$(BIN)/python tests/chaos/chaos.py --minutes $(MINUTES) --seed $(SEED)

# Every warning is an error. Nothing is reused from an earlier build (-E), since many pages depend on the code.
docs: $(INSTALLED)
	$(BIN)/python -m sphinx -b html -E -W --keep-going -q docs docs/_build
	@echo "documentation: docs/_build/index.html"

ui: $(INSTALLED)
	$(BIN)/python -m faze ui

# This compiles the C kernels, and recompiles them after a change. Packages in PYTHONPATH would not be installed into .venv.
$(INSTALLED): export PYTHONPATH :=
$(INSTALLED): pyproject.toml constraints.txt setup.py faze/base/compiled.py $(wildcard faze/*/*.c faze/*/*/*.c)
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else \
		f"{sys.executable} is Python {v[0]}.{v[1]}; faze needs 3.11, 3.12 or 3.13: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --constraint constraints.txt --no-build-isolation --editable '.[workflow,test,docs]'
	touch $(INSTALLED)

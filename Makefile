# make ablation   everything, from raw frames to the report (CONFIG=config/sizes/smoke.yaml for another experiment)
# make demo       a small ablation in three minutes; opens its page if there is a display
# make test       style, documentation and tests, in 11 minutes on two cores; CI runs this
# make landmarker MediaPipe and its model, for `faze gaze` and for head poses in your own frames
# make networks   the packages unigaze and ptgaze, for `faze gaze --model unigaze:NAME`
# make compiled   tests that compile C++; takes minutes
# make oldest     tests of training with the oldest supported versions of torch and other packages
# make cluster    a test on a SLURM cluster of one node on this machine; needs root and Debian's slurm-wlm and munge
# make docs       the documentation: docs/_build/index.html
# make gpu        proofs, speed and memory of every tier on one GPU, in a report and MLflow; GPU=smoke: a small run, also on a CPU
# make gpu_page   the report and the MLflow runs of the measurements so far, after `make gpu` was stopped
# make ui         MLflow's page for the results
# Each target first creates .venv if it is missing or outdated. Requires python3 (3.11-3.13, with venv) and a C and a C++
# compiler, for faze's kernels and for torch.compile.

PYTHON ?= python3
CORES ?= all
CONFIG ?=
GPU ?= gpu

BIN := .venv/bin
INSTALLED := .venv/installed
LANDMARKER := face_landmarker.task
LANDMARKER_URL := https://storage.googleapis.com/mediapipe-models/face_landmarker/face_landmarker/float16/1/$(LANDMARKER)
LANDMARKER_SHA256 := 64184e229b263107bc2b804c6625db1341ff2bb731874b0bcc2fe6544e0bc9ff
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: ablation demo landmarker networks test lint unit kills compiled oldest workflow cluster docs gpu gpu_page ui

ablation: $(INSTALLED)
	$(BIN)/snakemake --cores $(CORES) ablation $(if $(CONFIG),--configfile $(CONFIG))

demo: $(INSTALLED)
	$(BIN)/snakemake ablation --cores $(CORES) --configfile config/sizes/demo.yaml
	@test -z "$$DISPLAY$$WAYLAND_DISPLAY" || $(BIN)/python -m webbrowser "file://$(CURDIR)/results/demo/report/index.html"

# MediaPipe is installed without its dependencies: one would replace faze's OpenCV, and faze already has the others.
landmarker: $(INSTALLED) $(LANDMARKER)
	echo "$(LANDMARKER_SHA256)  $(LANDMARKER)" | sha256sum --check --quiet
	$(BIN)/python -m pip install --quiet --no-deps mediapipe==1.2.3

$(LANDMARKER): | $(INSTALLED)
	$(BIN)/python -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' $(LANDMARKER_URL) $@.part
	mv $@.part $@

# The same is true for these packages. They download their networks when these are used for the first time.
NETWORKS := unigaze==0.1.3 ptgaze==0.3.0 timm==1.0.31 torchvision==0.28.0 omegaconf==2.4.0 antlr4-python3-runtime==4.9.3 \
	safetensors==0.8.0 huggingface_hub==2.4.0 hf_xet==1.8.0 httpx2==2.16.2 httpcore2==2.16.2 truststore==0.10.5

networks: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps $(NETWORKS)

# For tests, in a separate folder: a torchvision that does not match the build of torch would break other packages.
.networks: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .networks $(NETWORKS)
	touch $@

# Two workers on two cores, one thread per process. A worker runs whole files, whose tests share fixtures; the longest start first.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# One run of pytest, so that both workers are busy until the end.
test: lint docs .networks
	$(PYTEST) -m "not compiled and not cluster"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check --line-length 120 Snakefile workflow
	$(BIN)/lint-imports
	$(BIN)/codespell --skip docs/_build Snakefile Makefile NOTICE CITATION.cff *.md benchmarks config docs envs examples faze profiles tests workflow
	$(BIN)/python tests/english.py *.md Snakefile benchmarks config docs examples faze profiles tests workflow
	$(BIN)/python tests/size.py

unit: $(INSTALLED) .networks
	$(PYTEST) -m "not compiled and not cluster and not workflow and not kills"

workflow kills: $(INSTALLED)
	$(PYTEST) -m $@

# Takes minutes without cached kernels, so it is not part of `test`.
compiled: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m compiled

# The oldest versions that pyproject.toml allows, in a separate environment. PyPI's torch includes gigabytes of CUDA libraries.
# Triton 3.6's interpreter, which runs GPU kernels on a CPU, fails with numpy 2.4.
oldest:
	$(PYTHON) -m venv .oldest
	.oldest/bin/python -m pip install --quiet torch==2.11.0 triton==3.6.0 numpy==2.4.0 scipy==1.17.0 h5py==3.16.0 \
		opencv-python-headless==5.0.0.93 pyyaml==6.0 pydantic==2.14.0 filelock==4.2.0 joblib==1.6.0 tqdm==4.70.0 pytest
	OMP_NUM_THREADS=1 .oldest/bin/python -m pytest -m "not compiled" -k "not triton_kernels" tests/engine

cluster: $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt snakemake-executor-plugin-slurm
	$(BIN)/pytest -m cluster tests/workflow/test_slurm.py -o faulthandler_timeout=3600

# Every warning is an error. Nothing is reused from an earlier build (-E), since many pages depend on the code.
docs: $(INSTALLED)
	$(BIN)/python -m sphinx -b html -E -W --keep-going -q docs docs/_build
	@echo "documentation: docs/_build/index.html"

# This can be stopped at any time. Finished measurements are kept and shown (benchmark.json, the log). The same command then
# resumes the proofs at the next tier. On a GPU, it also resumes the rounds at the next tier.
gpu: $(INSTALLED)
	$(BIN)/snakemake --cores $(CORES) --keep-incomplete results/$(GPU)/benchmark/benchmark.json --configfile config/sizes/$(GPU).yaml
	$(MAKE) gpu_page

gpu_page:
	$(BIN)/faze report --config results/$(GPU)/configs/report.yaml --results results/$(GPU) --out results/$(GPU)/report
	$(BIN)/faze track --config results/$(GPU)/configs/track.yaml --results results/$(GPU) --out results/$(GPU)/tracking/tracked.json

ui: $(INSTALLED)
	$(BIN)/python -m faze ui

# The installation compiles the C kernels, and recompiles them after a change.
$(INSTALLED): pyproject.toml constraints.txt setup.py faze/native/compiled.py $(wildcard faze/*/*.c faze/*/*/*.c)
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else \
		f"{sys.executable} is Python {v[0]}.{v[1]}; faze needs 3.11, 3.12 or 3.13: run make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --constraint constraints.txt --no-build-isolation --editable '.[workflow,test,docs]'
	touch $(INSTALLED)

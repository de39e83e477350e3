# Two commands: `make demo` shows what it does, `make test` checks it. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint types audit lock tests docs release bench fuzz world clean

demo: $(READY)
	@$(BIN)/nscaching demo

test: lint types audit tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

# --no-index: pip may only confirm that each locked version is installed.
audit: $(READY)  ## what is installed is what is locked; known vulnerabilities where pip-audit reaches its data
	$(BIN)/pip --isolated install --quiet --dry-run --no-index --no-deps --require-hashes -r requirements-dev.txt
	$(BIN)/pip --isolated check
	$(BIN)/python tools/audit.py

# Versions and hashes stay unless pyproject.toml asks for others; LOCK="--upgrade" takes new versions.
# Only the index of PyPI counts, so the lock is the same wherever it is made.
lock: $(READY)  ## after a change of the dependencies in pyproject.toml
	cat requirements-dev.txt requirements-cuda.txt > .venv/lock.txt
	PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
		--strip-extras --extra dev --build-deps-for editable --no-emit-options --no-header \
		--annotation-style line $(LOCK) --output-file .venv/lock.txt pyproject.toml
	awk -f tools/split_lock.awk .venv/lock.txt

tests: $(READY)
	$(BIN)/pytest -n 2

docs: $(READY)  ## the site from docs/ and docstrings, in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

release: $(READY)  ## wheel and sdist in dist/, installed and tried in an empty environment each
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tools/release_check.py

bench: $(READY)  ## seconds per epoch and ranking on this machine
	$(BIN)/python benchmarks/speed.py

fuzz: $(READY)  ## ten minutes of damaged files for every reader
	$(BIN)/python tools/fuzz.py --minutes 10

world: $(READY)  ## make the embedded data set anew
	$(BIN)/python tools/build_world.py

# pip checks the hash of every file. PyTorch's CPU build is not on PyPI: without it the first line of
# three fails, and the second takes the build of PyPI, which needs the third if it is for CUDA.
# An interrupted install leaves no stamp, so the next call does it again.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-deps
$(READY): pyproject.toml $(wildcard requirements-*.txt)
	$(PYTHON) -m venv .venv
	@$(INSTALL) --require-hashes -r requirements-cpu.txt 2>/dev/null || echo "PyTorch: the build of PyPI"
	$(INSTALL) --require-hashes -r requirements-dev.txt
	@if ls .venv/lib/python*/site-packages/torch/lib/libtorch_cuda.so 2>/dev/null; then \
		$(INSTALL) --require-hashes -r requirements-cuda.txt; fi
	$(INSTALL) --no-build-isolation -e .
	@touch $@

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src -name '*.nb[ci]' -delete  # what Numba compiled

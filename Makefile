# Two commands: `make demo` shows what it does, `make test` checks it. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint types audit lock tests bench fuzz world clean

demo: $(READY)
	@$(BIN)/nscaching demo

test: lint types audit tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

audit: $(READY)  ## what is installed, by pip-audit or against constraints.txt and tools/lock.txt
	$(BIN)/python tools/audit.py

lock: $(READY)  ## after a change of constraints.txt: what is installed is what should be
	$(BIN)/python tools/audit.py --write-lock

tests: $(READY)
	$(BIN)/pytest -n 2

bench: $(READY)  ## seconds per epoch and ranking on this machine
	$(BIN)/python benchmarks/speed.py

fuzz: $(READY)  ## ten minutes of damaged files for every reader
	$(BIN)/python tools/fuzz.py --minutes 10

world: $(READY)  ## make the embedded data set anew
	$(BIN)/python tools/build_world.py

# An interrupted install leaves no stamp, so the next call does it again.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src -name '*.nb[ci]' -delete  # what Numba compiled

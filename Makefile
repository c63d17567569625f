# Six words: run, test, check, fix, prove, bench; and for whoever releases: lock, release. All that they need is Python 3.11 or later, git and make.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
ARGS   ?=

.PHONY: run test check fix prove bench docs lock release clean

run: $(VENV)/.run
	$(BIN)/python examples/tools/disk_cleanup.py demo .sayso/demo > /dev/null
	$(BIN)/sayso dev --gate examples $(ARGS)

# Two processes more than cores. What one has compiled the others need not, nor the processes that tests start.
test prove: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy
	$(BIN)/sayso validate examples
	$(BIN)/sayso test examples/scenarios
	$(BIN)/python -m deploy.audit

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The long version of what `make test` shows a sample of. Generated values are new each time.
SAMPLED = $(shell grep -rlE "support.proving import|hypothesis|canaries|mark\.long" tests --include='test_*.py')
prove: $(VENV)/.dev
	PROVE=1 $(BIN)/python -m pytest -n auto --dist worksteal --timeout 900 $(sort $(SAMPLED) tests/engine tests/proof tests/simulation tests/storage) $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python -m bench $(ARGS)

# The parts of the documentation that are generated from the code.
docs: $(VENV)/.dev
	$(BIN)/python -m docs.generate

# The packages that sayso needs to run, of the versions of constraints.txt, with the hashes of all their files.
COMPILE = $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host -c constraints.txt --extra blobs --extra postgres
lock: $(VENV)/.release
	$(COMPILE) -o deploy/requirements.txt pyproject.toml
	$(COMPILE) --extra mcp -o deploy/requirements-mcp.txt pyproject.toml

# Wheel, source archive, SBOM, chart, image (where buildah is there) and checksums in dist, tried in a fresh environment.
release: $(VENV)/.release
	$(BIN)/python -m deploy.audit
	$(BIN)/python -m deploy.release $(ARGS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sayso needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Say which one to use: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing sayso and what it needs into $(VENV), once; that takes about a minute."
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing sayso and what its tests need into $(VENV), once; that takes some minutes."
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.run

$(VENV)/.release: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,release]"
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

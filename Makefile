# make app     create .venv, install, serve the suite at http://127.0.0.1:8866
# make test    create .venv, install what tests need (a browser too), run everything that CI runs
# make fast    the same without kernels and browser        make lint    only the static checks
# make bench   time the estimates                          make lock    resolve requirements.lock anew
# make hub     try deploy/jupyterhub_config.py with a real JupyterHub and a browser, in an environment of its own, and
#              read deploy/kubernetes.yaml with the models of Kubernetes
# make image   carry out deploy/Containerfile step by step where no container engine runs (as root on Linux), and try the result
# make docs    write the produced parts of README and docs anew
# make coverage  share of branches that tests take     make mutation  share of small errors that they notice
# make clean   remove .venv and caches
#
# Needs Python 3.11 or newer, make and git. Another interpreter: make app PYTHON=/path/to/python3.12

VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8866
EXTRAS := app,report,sweep,refresh,hub

# The first interpreter that runs and is new enough; a name may exist and still not start (pyenv's shims).
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && command -v "$$name" && break; done)

# uv when it is installed, else its wheel inside .venv. It is given the interpreter and must not fetch another.
UV = $(shell command -v uv || echo $(BIN)/uv)
export UV_PYTHON_DOWNLOADS = never
# Trust what the system trusts, as pip and browsers do: a company's own authority stands there alone. (The older name too.)
export UV_SYSTEM_CERTS = 1
export UV_NATIVE_TLS = 1
# Compiled at once, as pip does it: imports are three times as slow where Python may not write its caches later.
INSTALL = $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python

.PHONY: app test fast lint bench hub image docs coverage mutation lock browser clean
.DEFAULT_GOAL := app

app: $(VENV)/app.stamp
	@$(BIN)/python -m compileall -q gpuguide
	$(BIN)/gpuguide app --port $(PORT)

test: $(VENV)/test.stamp browser
	@$(BIN)/python -m compileall -q gpuguide
	$(BIN)/python tools/check.py

fast: $(VENV)/test.stamp
	$(BIN)/python tools/check.py ruff format mypy imports tests

lint: $(VENV)/test.stamp
	$(BIN)/python tools/check.py ruff format mypy imports

bench: $(VENV)/test.stamp
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-columns=min,median,max,rounds

# JupyterHub is no part of the lock: a hub brings its own, beside what the lock fixes. Models before 37 let any field pass.
hub: $(VENV)/test.stamp browser
	@test -x build/hub/bin/python || $(BIN)/python -m venv build/hub
	$(UV) pip install --quiet --python build/hub/bin/python --constraint requirements.lock --build-constraint requirements.lock \
		--group test --editable '.[$(EXTRAS)]' jupyterhub configurable-http-proxy 'kubernetes>=37'
	build/hub/bin/python -m pytest -q -m hub tests/deploy/test_cluster.py tests/deploy/test_hub.py

image: $(VENV)/test.stamp
	$(BIN)/python -m pytest -q -s -m image tests/deploy/test_image.py

docs: $(VENV)/test.stamp
	$(BIN)/python tools/docs.py

coverage: $(VENV)/test.stamp
	$(BIN)/python tools/branches.py

# Not in the lock: nothing else needs it, and it brings a text interface of its own along.
mutation: $(VENV)/test.stamp
	$(INSTALL) --constraint requirements.lock 'mutmut==3.8.1'
	$(BIN)/python tools/mutation.py

browser: $(VENV)/test.stamp
	@sh tools/browser.sh $(BIN)/playwright

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "gpuguide needs Python 3.11 or newer and found none; install one or give its path: make app PYTHON=/path/to/python3" >&2; exit 1; }
	@if command -v uv >/dev/null; then uv venv --quiet --python "$(PYTHON)" $(VENV); \
	else "$(PYTHON)" -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; fi

# One lock serves both. Tests take all of it, hashes required. The app takes only what its extras name, so that a user is
# not sent test tools and a browser driver; as a constraint the lock still fixes each version and its hashes.
$(VENV)/app.stamp: pyproject.toml requirements.lock | $(BIN)/python
	$(INSTALL) --constraint requirements.lock --build-constraint requirements.lock --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/test.stamp: pyproject.toml requirements.lock | $(BIN)/python
	$(INSTALL) --require-hashes --requirement requirements.lock
	$(INSTALL) --no-deps --build-constraint requirements.lock --editable .
	@touch $@

# For Python 3.11 to 3.13 on any system at once; names, versions and hashes only, no addresses.
lock: | $(BIN)/python
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
		--all-extras --group test --group build --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
		--output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

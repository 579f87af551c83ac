# One word for everyday work. Everything runs from .venv, which `make setup` builds with nothing but python3:
# the interpreter is checked, the hashed lock is installed, and Ottla itself is installed editable.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.ottla-setup
DEMO_STAMP := $(VENV)/.ottla-demo
# One process of tests more than there are cores, because a test often waits for a JVM; 3 GiB of memory for each process.
JOBS   ?= $(shell $(PYTHON) -c 'from os import cpu_count, sysconf; \
  print(max(1, min((cpu_count() or 1) + 1, sysconf("SC_PAGE_SIZE") * sysconf("SC_PHYS_PAGES") // 3221225472)))')
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo dist test quick check bench up sim mutants soak docs site lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Bytecode is compiled here because some machines forbid Python to write it on import, and a node then starts slowly.
setup: $(STAMP)  ## make .venv from the lock; nothing to do when it is up to date
	@$(PY) -m compileall -q src/ottla

# A recipe re-runs only when its lock or the project's metadata changed. The developers' lock has all of the demo's lock.
$(STAMP): requirements-dev.lock pyproject.toml | $(PY)
	@$(PYTHON) tools/set_up.py requirements-dev.lock $(VENV) --editable
	@touch $(DEMO_STAMP) $@

$(DEMO_STAMP): requirements-spark.lock pyproject.toml | $(PY)
	@$(PYTHON) tools/set_up.py requirements-spark.lock $(VENV)
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Ottla needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "$(PYTHON) has no venv/ensurepip; install it (Debian: apt-get install python3-venv)." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

demo: $(DEMO_STAMP)  ## run the main job end to end; installs only what the demo needs
	@$(PY) -m compileall -q src/ottla
	@$(PY) -m ottla.demo $(ARGS)

dist: setup  ## wheel and sdist in dist/, built twice and compared, checked
	@$(PY) -m tools.dist

# pytest keeps the bytecode of rewritten modules, also where the environment forbids that: each process needs 7 s of CPU time
# to collect the tests instead of 20 s.
test: setup  ## all tests, in parallel; ARGS="-k name" narrows
	@$(PY) -m tests.support.prepare
	@PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(JOBS) --dist worksteal --session-timeout 3000 -m "not soak" $(ARGS)

# Without other programs, Spark, browsers and the simulator's many seeds: what a change of the log or the command line breaks.
quick: setup  ## the tests for daily work: no interop, Spark, browsers, simulator
	@PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(JOBS) --dist worksteal -m "not soak and not interop" \
	  tests/broker tests/cli tests/client tests/controller tests/coordinator tests/env tests/log tests/metadata tests/model \
	  tests/payloads tests/protocol tests/raft tests/replication tests/runtime tests/server tests/transactions $(ARGS)

check: setup  ## ruff, mypy --strict (Linux, macOS), import-linter, tidy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m mypy --platform darwin --cache-dir .mypy_cache/darwin
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) -m pytest -q -p no:cacheprovider tests/test_tidy.py tests/test_systems.py

bench: setup  ## Ottla beside Apache Kafka (needs java and mvn)
	@$(PY) -m bench $(ARGS)

up: setup  ## a node in the foreground
	@$(VENV)/bin/ottla up $(ARGS)

sim: setup  ## the simulator: SEED=N for one seed and its trace, COUNT=N for many
	@$(PY) -m ottla.simulation $(if $(SEED),--seed $(SEED),--count $(or $(COUNT),200)) $(ARGS)

mutants: setup  ## planted bugs against the simulator: a table of found and survived (ARGS="--seeds 40 data")
	@$(PY) -m tests.simulation.mutants $(ARGS)

soak: setup  ## the long tests
	@$(PY) -m pytest -n 0 -m soak $(ARGS)

docs: setup  ## rewrite the generated pages of docs/
	@$(PY) -m tools.config_docs
	@$(PY) -m tools.metrics_docs
	@$(PY) -m tools.state_docs
	@$(PY) -m tools.seeds_docs
	@$(PY) -m tools.simulate_docs
	@$(PY) -m tools.licences
	@$(PY) -m tools.cli_docs
	@$(PY) -m tools.python_docs
	@set -- bench/results/*.json; test ! -e "$$1" || $(PY) -m bench --docs --from "$$@" --floor bench/results/floor/*.json

site:  ## build the documentation's site into build/site
	@test -e build/site-env/bin/python || $(PYTHON) -m venv build/site-env
	@build/site-env/bin/python tools/set_up.py requirements-site.lock build/site-env
	@build/site-env/bin/python -m tools.site_pages

lock: setup  ## resolve the locks again (uv; no addresses are written)
	@for extra in "" sql spark dev; do \
	  $(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --upgrade \
	    --no-header --no-annotate --no-emit-index-url --no-emit-find-links $${extra:+--extra $$extra} pyproject.toml \
	    -o requirements$${extra:+-$$extra}.lock || exit 1; done
	@$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --upgrade --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links tools/site.in -o requirements-site.lock

clean:  ## remove what make and the tools made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build

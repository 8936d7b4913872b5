# The two commands to know: `make demo` shows what there is, `make test` checks everything. What follows ## is help.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
# uv where there is one (seconds), else venv and pip; both read the same pins.
UV := $(shell command -v uv 2>/dev/null)
VENV := $(if $(UV),uv venv --quiet --allow-existing --python "$(PYTHON)" .venv,"$(PYTHON)" -m venv .venv)
PIP := $(if $(UV),uv pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check)
PINNED := $(PIP) --constraint constraints.txt
# The published tables of ICU-Sepsis, 1 MB; what its package would bring along is not needed to read them.
TABLES := 'icu-sepsis>=2,<3'
RESULTS := adversarial bounds families icu live offline online poisoning shuffle spotlight suite trust

.PHONY: help lint install-spark typescript $(shell sed -n 's/^\([a-z-]*\):.* \#\# .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "%-25s %s\n", $$1, $$2}'

demo: install ## install, and see all of it once: private policies online and from a log, what privacy costs, a report, a certificate
	$(BIN)/discreet demo --out demo

test: lint ## install, check style and types, run all tests
	$(BIN)/pytest -q -n 2

install: $(STAMP) ## only create .venv, with everything the other targets need

$(STAMP): pyproject.toml constraints.txt
	@$(VENV)
	@$(PINNED) --editable '.[dev]'
	@$(PIP) --no-deps $(TABLES)
	@touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install ## measure speed against plain baselines, write benchmarks/results.json
	$(BIN)/python benchmarks/run.py

# Shown numbers are the same on every processor (docs/stability.md).
docs: export OPENBLAS_CORETYPE = Sandybridge
docs: install ## rewrite docs/algorithms.md, the indexes of docs/papers and what commands print, from the program
	$(BIN)/discreet algorithms --markdown > docs/algorithms.md.part
	mv docs/algorithms.md.part docs/algorithms.md
	$(BIN)/python benchmarks/paper_index.py
	$(BIN)/python website/pictures.py
	$(BIN)/python website/sessions.py

# Warnings are errors, in the tests as well.
site: install ## build the documentation site into site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "built: open site/index.html, or make site-serve (search works there only) and go to http://127.0.0.1:8090/"

site-serve: site ## build it and show it on port 8090
	$(BIN)/python -m http.server 8090 --bind 127.0.0.1 --directory site

# Demonstrations of deployments ---------------------------------------------------------------------------------------

demo-live: install ## a server, 2,000 simulated people who talk to it, what it learns, and its certificate (minutes)
	$(BIN)/python benchmarks/demo_live.py

# Ports 8010 and 8011.
demo-two-servers: install ## a leader, a helper and 2,000 simulated people who trust neither of them (two minutes)
	$(BIN)/python benchmarks/demo_two_servers.py

# Ports 8012 and 8013.
demo-shuffle: install ## an analyzer, a shuffler and 2,000 simulated people whose devices seal every bit (three minutes)
	$(BIN)/python benchmarks/demo_shuffle.py

# Tables and pictures of docs -----------------------------------------------------------------------------------------

results-adversarial: ## the table of docs/results-adversarial.md (up to 40 minutes, can be continued)
results-bounds: ## the tables and the picture of docs/bounds.md (five minutes)
results-families: ## the tables of docs/results-families.md (minutes, can be continued)
results-icu: ## the tables of docs/icu-sepsis.md (up to 20 minutes, can be continued)
results-live: ## the tables of docs/live.md (15 minutes)
results-offline: ## what is learned from logs (can be continued), tables in results/offline
results-online: ## the table of docs/results-online.md (up to 40 minutes, can be continued)
results-poisoning: ## the tables of docs/poisoning.md (fifteen minutes, can be continued)
results-shuffle: ## the tables of docs/results-shuffle.md (up to 30 minutes, can be continued)
results-spotlight: ## the table of docs/results-spotlight.md (minutes, can be continued)
results-suite: ## the scores of docs/suite.md (an hour, can be continued)
results-trust: ## the picture and the tables of docs/trust-models.md (ten minutes, can be continued)
$(RESULTS:%=results-%): results-%: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/results_$*.py

results-figures: install ## the figures of docs/figures.md in full (an hour, can be continued)
	for figure in wzcw23-figure-4 qw22-figure-1a qw22-figure-1b; do $(BIN)/discreet reproduce $$figure || exit 1; done
	$(BIN)/python benchmarks/results_figures.py results/figures

# Tests that need more than Python ------------------------------------------------------------------------------------

# Pages are tested in Debian's chromium, over a pipe and with the standard library: nothing else is needed.
test-browser: install ## open the pages in chromium (as root: install it by apt-get where it is missing)
	@test -x /usr/bin/chromium || { test "$$(id -u)" = 0 && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } || \
	  { echo "chromium is missing; install it with: apt-get install chromium"; exit 1; }
	$(BIN)/pytest -q -n 0 -m browser tests/browser

# The client for browsers and apps; its one dependency is the compiler.
typescript:
	cd clients/typescript && npm install --no-package-lock --no-audit --no-fund --silent && npm run --silent build

# Vectors are those of the Python tests.
test-typescript: typescript ## build and test what runs in browsers and apps (needs Node 20 and npm)
	cd clients/typescript && npm test --silent

# PostgreSQL comes as a wheel; as root it runs as a user of its own.
test-postgres: install ## deployments in a PostgreSQL that comes with the tests: two servers, one of them killed
	$(BIN)/pytest -q -n 0 -m postgres tests/live/test_live_postgres.py

# Kills at exact system calls and failing disks are made by Debian's strace (as root: installed by apt-get where it is missing).
test-live-long: install ## break a deployment on purpose, 500 kills and 1,000 power cuts (ten minutes, needs strace)
	@command -v strace >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends strace; } || \
	  { echo "strace is missing; install it with: apt-get install strace"; exit 1; }
	$(BIN)/pytest -q -n 0 -m long tests/live

# Spark is an extra: it brings its own Java where none is installed (the test hides the one that is).
install-spark: install
	@$(PINNED) --editable '.[dev,spark]'

test-spark: install-spark ## install Spark, start a cluster on this machine, compare its counts with DuckDB's
	$(BIN)/pytest -q tests/logs/test_spark.py

bench-spark: install-spark ## the same cluster, rows it counts per second beside DuckDB's
	$(BIN)/python benchmarks/spark_rows.py

test-ray: EXTRAS = 'ray>=2.30'
test-readers: EXTRAS = 'pandas>=2' 'polars>=1'
test-ray: ## install Ray, run a sweep on it, compare with this process
test-readers: ## install pandas and Polars, open a folder of results with them
test-ray test-readers: install
	@$(PINNED) $(EXTRAS)
	$(BIN)/pytest -q tests/runs/test_sweep_extras.py

# Releases ------------------------------------------------------------------------------------------------------------

# From the repository; the wheel is made from what the source distribution holds.
dist: install ## build the source distribution and the wheel, into dist
	rm -rf dist
	$(BIN)/python -m build --quiet --no-isolation --outdir dist .

dist-test: dist ## build them, install the wheel away from the source, run commands and tests there
	$(BIN)/python tests/elsewhere.py dist dist

test-oldest: ## the tests of other environments on the oldest libraries that are allowed
test-newest: ## the same on the newest libraries there are
test-pythons: ## the same on each of Python 3.12 and 3.13 that is found
test-oldest test-newest test-pythons: install
	$(BIN)/python tests/elsewhere.py $(@:test-%=%)

clean: ## remove everything that make made (results of your own runs stay)
	rm -rf .venv .elsewhere build dist site demo demo-live demo-regret.png demo-report.html demo-policy demo-log.parquet demo-log.parquet.spent.jsonl demo-mine benchmarks/results.json .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf clients/typescript/node_modules clients/typescript/dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The two commands to know: `make demo` shows what there is, `make test` checks everything.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
# The published tables of ICU-Sepsis, 1 MB; what its package would bring along is not needed to read them.
TABLES := 'icu-sepsis>=2,<3'

.PHONY: help install demo test lint bench results-spotlight results-families docs clean results-online results-adversarial results-shuffle results-offline results-icu results-bounds results-figures test-spark test-browser bench-spark install-spark

help:
	@echo "make demo     install, compare the learners on RiverSwim, learn from a log; a report and a certificate to look at"
	@echo "make test     install, check style and types, run all tests"
	@echo "make install  only create .venv, with everything the other targets need"
	@echo "make bench    measure speed against plain baselines, write benchmarks/results.json"
	@echo "make results-spotlight  the table of docs/results-spotlight.md (minutes, can be continued)"
	@echo "make results-families   the tables of docs/results-families.md (minutes, can be continued)"
	@echo "make results-online  the table of docs/results-online.md (up to 40 minutes, can be continued)"
	@echo "make results-shuffle  the tables of docs/results-shuffle.md (up to 30 minutes, can be continued)"
	@echo "make results-adversarial  the table of docs/results-adversarial.md (up to 40 minutes, can be continued)"
	@echo "make docs     rewrite docs/algorithms.md from the catalog, and the indexes of docs/papers from the docstrings"
	@echo "make results-bounds  the tables and the picture of docs/bounds.md (five minutes)"
	@echo "make results-figures  the figures of docs/figures.md in full (an hour, can be continued)"
	@echo "make results-offline  measure what is learned from logs (resumable), tables in results/offline"
	@echo "make results-icu      the tables of docs/icu-sepsis.md (up to 20 minutes, can be continued)"
	@echo "make test-spark       install Spark, start a cluster on this machine, compare its counts with DuckDB's"
	@echo "make test-browser     open the pages in chromium (as root: install it by apt-get where it is missing)"
	@echo "make test-ray         install Ray, run a sweep on it, compare with this process"
	@echo "make test-readers     install pandas and Polars, open a folder of results with them"
	@echo "make bench-spark      the same cluster, rows it counts per second beside DuckDB's"
	@echo "make clean    remove everything that make made (results of your own runs stay)"

install: $(STAMP)

# uv where there is one (seconds), else venv and pip; both read the same pins.
$(STAMP): pyproject.toml constraints.txt
	@set -e; \
	if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python "$(PYTHON)" .venv; \
	  uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'; \
	  uv pip install --quiet --python $(BIN)/python --no-deps $(TABLES); \
	else \
	  "$(PYTHON)" -m venv .venv; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[dev]'; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(TABLES); \
	fi
	@touch $@

demo: install
	$(BIN)/discreet demo --out demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -q -n 2

results-spotlight: install
	$(BIN)/python benchmarks/results_spotlight.py

results-families: install
	$(BIN)/python benchmarks/results_families.py

bench: install
	$(BIN)/python benchmarks/run.py

results-online: install
	$(BIN)/python benchmarks/results_online.py

results-shuffle: install
	$(BIN)/python benchmarks/results_shuffle.py

results-adversarial: install
	$(BIN)/python benchmarks/results_adversarial.py

docs: install
	$(BIN)/discreet algorithms --markdown > docs/algorithms.md.part
	mv docs/algorithms.md.part docs/algorithms.md
	$(BIN)/python benchmarks/paper_index.py

results-offline: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/results_offline.py

results-bounds: install
	$(BIN)/python benchmarks/results_bounds.py

results-figures: install
	for figure in wzcw23-figure-4 qw22-figure-1a qw22-figure-1b; do $(BIN)/discreet reproduce $$figure || exit 1; done
	$(BIN)/python benchmarks/results_figures.py results/figures

results-icu: install
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/results_icu.py

# Spark is an extra: it brings its own Java where none is installed (the test hides the one that is).
install-spark: install
	@set -e; \
	if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev,spark]'; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[dev,spark]'; \
	fi

test-spark: install-spark
	$(BIN)/pytest -q tests/unit/test_spark.py

# Pages are tested in Debian's chromium, over a pipe and with the standard library: nothing else is needed.
test-browser: install
	@test -x /usr/bin/chromium || { test "$$(id -u)" = 0 && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } || \
	  { echo "chromium is missing; install it with: apt-get install chromium"; exit 1; }
	$(BIN)/pytest -q -n 0 -m browser tests/browser

# Extras of sweeps: nothing else needs them.
test-ray: EXTRAS = 'ray>=2.30'
test-readers: EXTRAS = 'pandas>=2' 'polars>=1'
test-ray test-readers: install
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --python $(BIN)/python --constraint constraints.txt $(EXTRAS); \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(EXTRAS); \
	fi
	$(BIN)/pytest -q tests/unit/test_sweep_extras.py

bench-spark: install-spark
	$(BIN)/python benchmarks/spark_rows.py

clean:
	rm -rf .venv build dist demo demo-regret.png demo-report.html demo-policy benchmarks/results.json .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

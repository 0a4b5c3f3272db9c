# `make` alone lists the targets. Each one makes .venv by itself first and again whenever the dependencies change.
#
#   PYTHON=python3.12 make test     which interpreter .venv is made with; by default the first that is 3.11 or later

PYTHON ?=
PYTEST_ARGS ?=
# Most tests of the stream wait for a broker. Three processes at a time, each with services of its own, are done sooner,
# and the more so if the long ones, which come first by name, begin first.
PYTEST := -m pytest -n 3 --dist loadfile --no-loadscope-reorder
# Threads of two processes that multiply small matrices on two cores wait for each other more than they compute.
export OPENBLAS_NUM_THREADS ?= 1
SEED ?= 1
VENV := .venv
INSTALLED := $(VENV)/.installed
KAFKA_LIBS := .cache/kafka
KAFKA_FETCHED := $(KAFKA_LIBS)/.fetched

.PHONY: help demo test test-real test-browser chaos lint format bench bench-models kafka-jars clean

help:  ## list the targets
	@echo "LEAP: live job history for choosing hardware"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(INSTALLED)  ## see all of it work on a small synthetic fleet, without Docker or Java
	@$(VENV)/bin/python -m leap_streams.demo

test: $(INSTALLED)  ## run the tests on the embedded broker and Redis
	@$(VENV)/bin/python $(PYTEST) $(PYTEST_ARGS)

test-real: $(INSTALLED) $(KAFKA_FETCHED)  ## run the stream's tests on a real Apache Kafka (needs Java 17 and Maven)
	@LEAP_TEST_KAFKA_LIBS="$(CURDIR)/$(KAFKA_LIBS)" $(VENV)/bin/python $(PYTEST) -m "real_kafka or stream" $(PYTEST_ARGS)

test-browser: $(INSTALLED)  ## open the HTML pages in a headless Chromium (needs Chromium)
	@$(VENV)/bin/python -m pytest -m browser $(PYTEST_ARGS)

chaos: $(INSTALLED) $(KAFKA_FETCHED)  ## kill everything for a quarter of an hour while events stream in, then check all (SEED=n)
	@LEAP_TEST_KAFKA_LIBS="$(CURDIR)/$(KAFKA_LIBS)" $(VENV)/bin/python tests/faults/chaos.py --seed $(SEED)

lint: $(INSTALLED)  ## check style, format and types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

format: $(INSTALLED)  ## mend style and format where that can be done by machine
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(INSTALLED)  ## run every benchmark but that of the models; each ends with a line of JSON
	@for file in $(filter-out benchmarks/models.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(VENV)/bin/python "$$file" || exit 1; done

bench-models: $(INSTALLED)  ## judge every model on a synthetic fleet, 30 nights (takes long; ARGS="--nights 3" for fewer)
	@$(VENV)/bin/python benchmarks/models.py $(ARGS)

kafka-jars: $(KAFKA_FETCHED)  ## fetch Apache Kafka's jars for `make test-real`

clean:  ## remove .venv, caches and builds (what the product wrote under data/ stays)
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@if [ ! -x $(VENV)/bin/python ]; then \
	  found=; \
	  for name in $(or $(PYTHON),python3.11 python3.12 python3.13 python3); do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$name; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "Python 3.11 or later is needed; none found as: $(or $(PYTHON),python3.11 python3.12 python3.13 python3)." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$($$found --version) ..."; \
	  if ! "$$found" -m venv $(VENV); then \
	    rm -rf $(VENV); \
	    echo "$$found has no working venv module. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	    exit 1; \
	  fi; \
	fi
	@echo "Installing LEAP and everything that its tests need into $(VENV) (some 1.5 GB the first time) ..."
	@$(VENV)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@

$(KAFKA_FETCHED): tests/kafka/pom.xml
	@command -v mvn >/dev/null || { echo "Maven is needed to fetch Kafka's jars: apt-get install maven" >&2; exit 1; }
	@echo "Fetching Apache Kafka's jars into $(KAFKA_LIBS) (54 MB) ..."
	@rm -rf $(KAFKA_LIBS)
	@mvn -q -B -f tests/kafka/pom.xml dependency:copy-dependencies -DincludeScope=runtime \
	  -DoutputDirectory="$(CURDIR)/$(KAFKA_LIBS)"
	@touch $@

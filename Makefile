# Each target is one ordinary command or a few; `make help` lists them.
SHELL := /bin/bash
# Without bytecode files every start of Python reads all sources again: two seconds of a daemon's three.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
RUN_READY := .venv/.run-ready
DEV_READY := .venv/.dev-ready
SPARK_READY := .venv/.spark-ready
OPERATE_READY := .venv/.operate-ready
CONSOLE_READY := .venv/.console-ready
DOCS_READY := .venv/.docs-ready
KERNELS_READY := .venv/.kernels-ready
# A second environment: Iceberg has no runtime for the Spark of the first.
READERS := build/iceberg-readers/venv
READERS_READY := $(READERS)/.ready
# PySpark 4.1 leaves sockets to the garbage collector.
READERS_PYTEST := KAFKALOG_KERNEL_CACHE=$(CURDIR)/.venv/lib/kafkalog/kernels $(READERS)/bin/python -m pytest -q -W ignore:unclosed:ResourceWarning
SOURCES := kafkalog pyspark_kafkalog tests tools examples
KERNEL_SOURCES := $(wildcard kafkalog/kernels/*.py kafkalog/kernels/*/*.py)
# System certificates: uv's bundled ones know no company proxy.
UV := $(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 --universal
SEED ?= 1
PYTEST := $(BIN)/python -m pytest -q
STAGES := $(PYTHON) -m tests.tools.stages
# What needs a tool or a daemon of its own is in nightly, unless it is marked gate; what is slow is there always.
NIGHTLY := own_daemon or campaign or oracle or spark or spark_kafka or iceberg_readers or operate or prometheus or image or console
GATE := not slow and (gate or not ($(NIGHTLY))) and not (oracle or spark)
KINDS := campaign or oracle or spark or spark_kafka or iceberg_readers or operate or prometheus or image or console

.PHONY: sim help setup run test ci nightly weekly campaign check fmt lint type contracts suite-of-daemons suite-of-units suite-of-crashes own-daemons oracle oracle-setup oracle-smoke prometheus console-test screenshots spark spark-setup spark-smoke gate-setup test-setup nightly-setup spark-parity iceberg-readers spark-freeze spark-kills pipeline slow-crashes slow-of-the-rest operate image-check bench bench-quick mission lock docs docs-site wheel image clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 16

$(RUN_READY): requirements/build.txt requirements/run.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kafkalog needs Python 3.11 or later; set PYTHON=..." >&2; exit 1; }
	@echo "setup: creating .venv with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@echo "setup: installing the locked requirements"
	@$(UV) --require-hashes -r requirements/run.txt
	@$(UV) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV_READY): $(RUN_READY) requirements/dev.txt
	@echo "setup: installing the locked development requirements"
	@$(UV) --require-hashes -r requirements/dev.txt
	@touch $@

$(OPERATE_READY): $(DEV_READY) requirements/operate.txt
	@echo "setup: installing the locked requirements of the tests of deploy/"
	@$(UV) --require-hashes -r requirements/operate.txt
	@touch $@

$(CONSOLE_READY): $(DEV_READY) requirements/console.txt
	@echo "setup: installing the locked requirements of the tests of the console"
	@$(UV) --require-hashes -r requirements/console.txt
	@touch $@

$(DOCS_READY): $(DEV_READY) requirements/docs.txt
	@echo "setup: installing the locked requirements of the site of the documents"
	@$(UV) --require-hashes -r requirements/docs.txt
	@touch $@

$(SPARK_READY): $(DEV_READY) requirements/spark.txt
	@echo "setup: installing the locked requirements of Spark (pyspark is large)"
	@$(UV) --require-hashes -r requirements/spark.txt
	@touch $@

$(READERS_READY): $(RUN_READY) requirements/dev.txt requirements/iceberg-readers.txt
	@echo "setup: creating $(READERS) from the locked requirements of the readers of Iceberg tables"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(READERS)
	@$(BIN)/uv pip install --quiet --system-certs --python $(READERS)/bin/python --require-hashes \
	  $(foreach name,build run dev iceberg-readers,-r requirements/$(name).txt)
	@$(BIN)/uv pip install --quiet --system-certs --python $(READERS)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

$(KERNELS_READY): $(RUN_READY) $(KERNEL_SOURCES)
	@$(BIN)/python -m kafkalog.kernels
	@touch $@

setup: $(KERNELS_READY) ## create .venv from the locked requirements and compile the kernels

run: setup ## start the daemon on 127.0.0.1:8082 with config/server.properties, data under ./data
	@exec $(BIN)/kafkalog server config/server.properties

fmt: $(DEV_READY) ## format the code
	@$(BIN)/ruff format $(SOURCES) && $(BIN)/ruff check --fix --quiet $(SOURCES)

lint: $(DEV_READY)
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "lint: run 'make fmt'" >&2; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES)

type: $(DEV_READY)
	@$(BIN)/mypy

contracts: $(DEV_READY) | build
	@$(BIN)/lint-imports > build/contracts.txt 2>&1 || { cat build/contracts.txt; exit 1; }

check: lint type contracts ## lint, types and import contracts

test: ## check, and the tests that need no Java (8 minutes on two processors)
	@$(STAGES) test

ci: ## the gate (.ci/run): test, short tests with Kafka's classes and with Spark (10 to 20 minutes)
	@$(STAGES) gate

nightly: ## all further stages, also after failures; continues after an interruption (FRESH=1 starts over)
	@$(STAGES) nightly

weekly: ## stages of hours: long fuzz, 200 kills of a stream
	@$(STAGES) weekly

# ---- stages; who runs them and beside what: tests/tools/stages.py

# Compiling kernels keeps one processor busy, packages come and are unpacked beside it.
test-setup:
	@$(MAKE) -s -j2 $(KERNELS_READY) $(DEV_READY)

gate-setup:
	@$(MAKE) -s -j3 $(KERNELS_READY) $(SPARK_READY) $(DOCS_READY) oracle-setup

nightly-setup:
	@$(MAKE) -s -j3 $(KERNELS_READY) $(SPARK_READY) $(READERS_READY) $(OPERATE_READY) $(CONSOLE_READY) $(DOCS_READY) oracle-setup

oracle-setup:
	@bash tests/oracle/kit/oracle.sh setup >/dev/null

suite-of-units: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) --durations 10 -m "$(GATE)" --ignore tests/integration --ignore tests/crash --ignore tests/simulation

suite-of-crashes: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) --durations 10 -m "$(GATE)" tests/crash tests/simulation

suite-of-daemons: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) --durations 10 -m "$(GATE)" --most-daemons 40 tests/integration

oracle-smoke: $(KERNELS_READY) $(DEV_READY) | build
	@KAFKALOG_ORACLE=required $(PYTEST) -m "oracle and gate" tests/oracle

spark-smoke: spark-setup | build
	@$(PYTEST) -m "spark and gate" tests/spark

own-daemons: $(KERNELS_READY) $(DEV_READY) | build ## tests that start separate daemons
	@$(PYTEST) -m "own_daemon and not (gate or slow or $(KINDS))" tests

oracle: $(KERNELS_READY) $(DEV_READY) | build ## compare with a real Apache Kafka (needs Java 17 and Maven)
	@$(PYTEST) -m "oracle and not spark" tests/oracle

prometheus: $(KERNELS_READY) $(DEV_READY) | build ## alerts and dashboards on a real Prometheus (fetches Debian's if none is installed)
	@KAFKALOG_PROMETHEUS=required $(PYTEST) -m prometheus tests/operate

console-test: $(KERNELS_READY) $(CONSOLE_READY) | build ## the console in a real Chromium (installs Debian's if there is none; needs npm)
	@KAFKALOG_CONSOLE=required $(PYTEST) -m console tests/console

screenshots: $(KERNELS_READY) $(CONSOLE_READY) ## update the pictures of docs/images (needs the same as console-test)
	@$(BIN)/python -m tests.console.screenshots

spark-setup: $(KERNELS_READY) $(SPARK_READY) ## add pyspark, pyarrow and pyiceberg to .venv

pipeline: spark-setup | build ## a generated day of telemetry through daemon, Spark, Parquet, Iceberg, compaction and audit
	@rm -rf build/pipeline
	@$(BIN)/kafkalog spark pipeline --out build/pipeline

spark: spark-setup | build ## the tests on a real Spark (needs Java 17)
	@$(PYTEST) -m spark tests/spark

spark-parity: spark-setup | build ## compare the source with Spark's own Kafka source on a real Kafka (needs Java 17 and Maven)
	@KAFKALOG_ORACLE=required $(PYTEST) -m spark_kafka tests/spark

iceberg-readers: $(KERNELS_READY) $(DEV_READY) $(READERS_READY) | build ## read our Iceberg tables by Spark, pyiceberg and DuckDB in a second environment (needs Java 17 and Maven)
	@$(READERS_PYTEST) -m iceberg_readers tests/spark
	@$(READERS_PYTEST) -m "spark and gate" tests/spark

spark-freeze: spark-setup | build ## update tests/spark/frozen from a real Kafka and Spark's own source (needs the same as spark-parity)
	@KAFKALOG_ORACLE=required $(BIN)/python -m tests.spark.freeze

spark-kills: spark-setup | build ## 200 kills of an exactly-once stream and 200 of an archive, instead of 50 and 20 as in make spark (SEED=n selects the seed)
	@KAFKALOG_SINK_KILLS=200 KAFKALOG_ARCHIVE_KILLS=200 SEED=$(SEED) $(PYTEST) -s -m spark tests/spark -k "test_kills_lose_and_double_nothing"

slow-crashes: $(KERNELS_READY) $(DEV_READY) | build ## a crash at every call
	@$(PYTEST) -m "slow and not ($(KINDS))" tests/crash

slow-of-the-rest: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) -m "slow and not ($(KINDS))" --ignore tests/crash

operate: $(KERNELS_READY) $(OPERATE_READY) | build ## check deploy/ with operators' tools (needs systemd, strace, and kubectl or Go)
	@KAFKALOG_OPERATE=required $(PYTEST) -m operate tests/operate

image-check: $(KERNELS_READY) $(DEV_READY) | build ## build the image without an engine and run it (root; apt-get install buildah mmdebstrap uidmap)
	@KAFKALOG_IMAGE=required $(PYTEST) -m image tests/operate

campaign: $(KERNELS_READY) $(DEV_READY) | build ## long forms of the fuzz tests
	@$(PYTEST) -m campaign

bench: spark-setup | build ## all benchmarks, compared with Kafka and Spark's Kafka source; writes tests/bench/results
	@$(BIN)/python -m tests.bench

bench-quick: $(KERNELS_READY) $(DEV_READY) | build
	@$(BIN)/python -m tests.bench --quick

sim: $(KERNELS_READY) $(DEV_READY) | build ## run one simulated daemon: make sim SEED=n
	@KAFKALOG_SIM_SEED=$(SEED) $(PYTEST) tests/simulation -k random_lives

mission: $(DEV_READY) ## list the mechanisms of docs/mission.md with their passed tests
	@$(BIN)/python -m tests.tools.mission

lock: $(RUN_READY) ## update the requirement files with pinned hashes
	@for f in build run arrow dev; do $(LOCK) requirements/$$f.in -o requirements/$$f.txt; done
	@$(LOCK) -c requirements/run.txt -c requirements/arrow.txt -c requirements/dev.txt requirements/executor.in requirements/spark.in requirements/duckdb.in -o requirements/spark.txt
	@$(LOCK) requirements/executor.in requirements/iceberg-readers.in requirements/duckdb.in -o requirements/iceberg-readers.txt
	@$(LOCK) requirements/operate.in -o requirements/operate.txt
	@$(LOCK) requirements/console.in -o requirements/console.txt
	@$(LOCK) requirements/docs.in -o requirements/docs.txt

docs: $(DEV_READY) ## regenerate the generated pages under docs/ and the dashboards
	@$(BIN)/python -m tools.pages

docs-site: $(DOCS_READY) | build ## build the documents as a site with a search in build/docs-site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build > build/docs-site.log 2>&1 || { cat build/docs-site.log >&2; exit 1; }

wheel: $(RUN_READY) ## build a wheel with compiled kernels into dist/, for this Python and platform
	@$(BIN)/python -c 'from setuptools import build_meta; print("dist/" + build_meta.build_wheel("dist"))'

image: ## build the container image
	@docker build -t kafkalog .

build:
	@mkdir -p build

clean:
	@rm -rf .venv build

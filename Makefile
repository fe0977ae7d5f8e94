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
KERNELS_READY := .venv/.kernels-ready
SOURCES := kafkalog pyspark_kafkalog tests
KERNEL_SOURCES := $(wildcard kafkalog/kernels/*.py)
# System certificates: uv's bundled ones know no company proxy.
UV := $(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.11 --universal
SEED ?= 1
PYTEST := $(BIN)/python -m pytest -q
SLOW := "slow and not oracle and not spark and not prometheus and not console"
QUICK := "not oracle and not slow and not campaign and not spark and not spark_kafka and not operate and not prometheus and not image and not console"

.PHONY: sim help setup run test ci campaign check fmt lint type contracts suite suite-of-daemons suite-of-the-rest oracle prometheus console-test console-setup screenshots spark spark-setup operate-setup spark-parity spark-freeze spark-kills pipeline crash kill slow slow-crashes slow-of-the-rest lane-alone lane-beside operate image-check bench bench-quick mission lock docs image clean

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

$(SPARK_READY): $(DEV_READY) requirements/spark.txt
	@echo "setup: installing the locked requirements of Spark (pyspark is large)"
	@$(UV) --require-hashes -r requirements/spark.txt
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

contracts: $(DEV_READY)
	@$(BIN)/lint-imports > build/contracts.txt 2>&1 || { cat build/contracts.txt; exit 1; }

check: | build
	@tests/tools/timed lint $(MAKE) -s lint
	@tests/tools/timed type $(MAKE) -s type
	@tests/tools/timed contracts $(MAKE) -s contracts
check: ## lint, types and import contracts

# Tests of a daemon mostly wait for it, the others keep a core busy.
suite: suite-of-daemons suite-of-the-rest

suite-of-daemons: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) -m $(QUICK) tests/integration

suite-of-the-rest: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) -m $(QUICK) --ignore tests/integration

test: ## check and the suite that needs no Java
	@rm -f build/mission.jsonl
	@$(MAKE) -s check
	@tests/tools/timed suite $(MAKE) -s $(if $(findstring -j,$(MAKEFLAGS)),,-j2) suite

oracle: $(KERNELS_READY) $(DEV_READY) | build ## compare with a real Apache Kafka (needs Java 17 and Maven)
	@$(PYTEST) -m "oracle and not spark" tests/oracle

prometheus: $(KERNELS_READY) $(DEV_READY) | build ## alerts and dashboards on a real Prometheus (Debian's, fetched when there is none)
	@KAFKALOG_PROMETHEUS=required $(PYTEST) -m prometheus tests/operate

console-setup: $(CONSOLE_READY)

console-test: $(KERNELS_READY) $(CONSOLE_READY) | build ## the console in a real Chromium (Debian's, installed when there is none; needs npm)
	@KAFKALOG_CONSOLE=required $(PYTEST) -m console tests/console

screenshots: $(KERNELS_READY) $(CONSOLE_READY) ## make the pictures of docs/images anew (as console-test)
	@$(BIN)/python -m tests.console.screenshots

spark-setup: $(KERNELS_READY) $(SPARK_READY) ## add pyspark, pyarrow and pyiceberg to .venv

pipeline: spark-setup | build ## a generated day of telemetry through daemon, Spark, Parquet, Iceberg, compaction and audit
	@rm -rf build/pipeline
	@$(BIN)/kafkalog spark pipeline --out build/pipeline

spark: spark-setup | build ## the tests on a real Spark (needs Java 17)
	@$(PYTEST) -m spark tests/spark

spark-parity: spark-setup | build ## the source beside Spark's own Kafka source, on a real Kafka (needs Java 17 and Maven; no part of ci)
	@KAFKALOG_ORACLE=required $(PYTEST) -m spark_kafka tests/spark

spark-freeze: spark-setup | build ## make tests/spark/frozen anew from a real Kafka and Spark's own source (as spark-parity)
	@KAFKALOG_ORACLE=required $(BIN)/python -m tests.spark.freeze

spark-kills: spark-setup | build ## 200 kills of an exactly-once stream instead of the 50 of make spark (long; make spark-kills SEED=n; no part of ci)
	@KAFKALOG_SINK_KILLS=200 SEED=$(SEED) $(PYTEST) -s -m spark tests/spark/test_sink_survives.py -k kills

slow: slow-crashes slow-of-the-rest

slow-crashes: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) -m $(SLOW) tests/crash

slow-of-the-rest: $(KERNELS_READY) $(DEV_READY) | build
	@$(PYTEST) -m $(SLOW) --ignore tests/crash

operate-setup: $(OPERATE_READY)

operate: $(KERNELS_READY) $(OPERATE_READY) | build ## deploy/ judged by the tools of operators (needs systemd, strace and kubectl or Go)
	@KAFKALOG_OPERATE=required $(PYTEST) -m operate tests/operate

image-check: $(KERNELS_READY) $(DEV_READY) | build ## build the image without an engine and run it (root; apt-get install buildah mmdebstrap uidmap)
	@KAFKALOG_IMAGE=required $(PYTEST) -m image tests/operate

campaign: $(KERNELS_READY) $(DEV_READY) | build ## long forms of the fuzz tests (no part of ci)
	@$(PYTEST) -m campaign

# No test session keeps two cores busy: lanes of them go side by side. Benchmarks have the machine alone.
ci: ## all that .ci/run calls: lanes of tests side by side, then quick benchmarks
	@tests/tools/timed setup $(MAKE) -s spark-setup operate-setup console-setup
	@$(MAKE) -s -j3 lane-alone lane-beside
	@tests/tools/timed bench-quick $(MAKE) -s bench-quick
	@$(MAKE) -s mission

lane-alone:
	@tests/tools/timed test $(MAKE) -s test
	@tests/tools/timed slow $(MAKE) -s slow

lane-beside:
	@tests/tools/timed oracle $(MAKE) -s oracle
	@tests/tools/timed prometheus $(MAKE) -s prometheus
	@tests/tools/timed console $(MAKE) -s console-test
	@tests/tools/timed spark $(MAKE) -s spark
	@tests/tools/timed operate $(MAKE) -s operate

bench: spark-setup | build ## all benchmarks, Kafka and Spark's Kafka source beside; writes tests/bench/results
	@$(BIN)/python -m tests.bench

bench-quick: $(KERNELS_READY) $(DEV_READY) | build
	@$(BIN)/python -m tests.bench --quick

sim: $(KERNELS_READY) $(DEV_READY) | build ## play one simulated daemon: make sim SEED=n
	@KAFKALOG_SIM_SEED=$(SEED) $(PYTEST) tests/simulation -k random_lives

mission: $(DEV_READY) ## the mechanisms of docs/mission.md with the tests that passed for each
	@$(BIN)/python -m tests.tools.mission

lock: $(RUN_READY) ## renew the hash-pinned requirement files
	@for f in build run arrow dev; do $(LOCK) requirements/$$f.in -o requirements/$$f.txt; done
	@$(LOCK) -c requirements/run.txt -c requirements/arrow.txt -c requirements/dev.txt requirements/spark.in -o requirements/spark.txt
	@$(LOCK) requirements/operate.in -o requirements/operate.txt
	@$(LOCK) requirements/console.in -o requirements/console.txt

docs: $(DEV_READY) ## regenerate the generated pages under docs/ and the dashboards
	@$(BIN)/python -m kafkalog.settings.reference > docs/configuration.md
	@$(BIN)/python -m kafkalog.observe.reference > docs/metrics.md
	@$(BIN)/kafkalog reference > docs/cli.md
	@$(BIN)/kafkalog reference --man > docs/man/kafkalog.1
	@$(BIN)/python -m kafkalog.server.error_map > docs/errors.md
	@$(BIN)/python -m kafkalog.observe.dashboards deploy/grafana

image: ## build the container image
	@docker build -t kafkalog .

build:
	@mkdir -p build

clean:
	@rm -rf .venv build

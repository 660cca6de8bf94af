# The one door: every task of this project starts here.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UNIT := not browser and not spark and not crash and not kafka and not postgres and not nats and not s3 and not hdfs and not flink and not prometheus
KILLED := crash and not browser and not spark and not kafka and not postgres and not nats and not s3 and not hdfs and not flink and not prometheus

.PHONY: help setup setup-servers setup-kafka setup-nats setup-s3 setup-hdfs setup-pyflink-examples setup-flink-cli setup-prometheus setup-browser vendor-web demo demo-barriers demo-s3 demo-kafka test test-unit test-servers test-spark test-browser test-crash fuzz soak check fix bench bench-keyed bench-checkpoints bench-barriers bench-exchange bench-connectors bench-stores bench-nexmark bench-models bench-state bench-pyflink clean

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## make .venv with penstock and its tools in it (quick the second time)

$(VENV)/.ready: pyproject.toml
	@echo "setting up $(VENV): the first time this downloads Spark (450 MB) and takes a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup-servers: ## fetch the servers the tests want; what cannot be had is skipped by them
	@$(MAKE) --no-print-directory --keep-going setup-kafka setup-nats setup-s3 setup-hdfs setup-pyflink-examples setup-flink-cli setup-prometheus || echo "going on without: the tests that need it are skipped"

setup-kafka: setup ## fetch a Kafka broker and Spark's Kafka connector, once, into ~/.cache/penstock
	@$(BIN)/python tools/servers/fetch_kafka.py

setup-nats: ## have a nats-server: the system's, or Debian's package in ~/.cache/penstock
	@tools/servers/fetch_debian.sh nats nats-server usr/sbin/nats-server

setup-prometheus: ## have a Prometheus: the system's, or Debian's package in ~/.cache/penstock
	@tools/servers/fetch_debian.sh prometheus prometheus usr/bin/prometheus

setup-s3: ## build versitygw, an S3 server, once, into ~/.cache/penstock
	@tools/servers/build_s3.sh

setup-hdfs: setup ## fetch a small HDFS, once, into ~/.cache/penstock
	@$(BIN)/python tools/servers/fetch_hdfs.py

setup-pyflink-examples: setup ## fetch the examples that ship in PyFlink's wheel, once, into ~/.cache/penstock
	@PYTHONPATH=. $(BIN)/python tools/servers/fetch_pyflink_examples.py

setup-flink-cli: setup ## fetch Flink's own command line, once, into ~/.cache/penstock
	@PYTHONPATH=. $(BIN)/python tools/servers/fetch_flink_cli.py

setup-browser: setup ## have a browser (Debian's chromium) and axe-core, for the tests of the dashboard
	@$(BIN)/python tools/web/fetch_browser.py

vendor-web: ## fetch the dashboard's JavaScript libraries again, at the versions in tools/web/vendor.py
	@$(PYTHON) tools/web/vendor.py

demo: setup ## a job on Spark whose driver is killed with -9 twice, and the proof that nothing was lost
	@$(BIN)/python examples/demo.py

demo-barriers: setup ## a job under a backlog: aligned checkpoints beside unaligned ones, and a kill -9 in between
	@$(BIN)/python examples/barriers.py

demo-s3: setup setup-s3 ## the job of the demo on two hosts that share only S3: driver, S3 server and a host are killed with -9
	@$(BIN)/python examples/s3_demo.py

demo-kafka: setup-kafka ## Kafka to Kafka and PostgreSQL, exactly once: driver, worker, broker and database are killed
	@$(BIN)/python examples/kafka_demo.py

test: setup setup-servers ## all tests: unit, with killed processes, then against servers and on Spark
	@$(BIN)/python -m pytest -n 2 -m "$(UNIT)"
	@$(BIN)/python -m pytest -m "$(KILLED)"
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not ($(UNIT)) and not ($(KILLED)) and not browser"

test-unit: setup ## the tests that need neither Spark nor servers (a minute or two)
	@$(BIN)/python -m pytest -n 2 -m "$(UNIT)"

test-servers: setup setup-servers ## the tests against real Kafka, PostgreSQL, NATS, S3, HDFS and Prometheus servers and Flink's command line, without Spark
	@$(BIN)/python -m pytest -m "(kafka or postgres or nats or s3 or hdfs or flink or prometheus) and not spark and not crash"

test-spark: setup ## the tests on a real local Spark
	@$(BIN)/python -m pytest -m spark

test-browser: setup ## the dashboard in a real browser (five minutes at most; without a browser they are skipped)
	@$(MAKE) --no-print-directory setup-browser || echo "going on without: the tests that need it are skipped"
	@$(BIN)/python -m pytest -m browser --session-timeout 600 tests/browser

test-crash: setup setup-servers ## the tests that kill real processes, then 1,100 schedules of faults made from seeds (hours)
	@$(BIN)/python -m pytest -m crash
	@$(BIN)/python -m tests.crash.schedules --seeds 1-200
	@$(BIN)/python -m tests.crash.schedules --family joined --seeds 1-200
	@$(BIN)/python -m tests.crash.schedules --family hostile --seeds 1-540
	@$(BIN)/python -m tests.crash.schedules --family stores --seeds 1-100
	@$(BIN)/python -m tests.crash.schedules --family spark --seeds 1-10 --at-once 1
	@$(BIN)/python -m tests.crash.orders --seeds 1-40 --at-once 2
	@$(BIN)/python -m tests.crash.orders --family spark --seeds 1-10
	@$(BIN)/python -m tests.crash.fuzz --minutes 10

fuzz: setup ## flip bits of checkpoints, savepoints, journal and history for MINUTES (10), and restore the job
	@$(BIN)/python -m tests.crash.fuzz --minutes $(or $(MINUTES),10)

soak: setup-kafka ## ten checkpoints per second for MINUTES (20); prints how fast memory, files and checkpoints grow
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),20)

check: setup ## ruff and strict mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

fix: setup ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: bench-keyed bench-checkpoints bench-barriers bench-exchange bench-connectors bench-nexmark bench-models bench-state ## all benchmarks but bench-pyflink (about 3 hours)

bench-keyed: setup ## throughput and fixed cost against Spark's own ways (25 minutes)
	@$(BIN)/python -m benchmarks.run

bench-checkpoints: setup ## what checkpoints and recoveries cost (about 1 hour)
	@$(BIN)/python -m benchmarks.checkpoints

bench-barriers: setup ## latency per hop, checkpoints through four stages and behind a backlog (10 minutes)
	@$(BIN)/python -m benchmarks.barriers

bench-exchange: setup ## channels beside Spark's shuffle as the exchange
	@$(BIN)/python -m benchmarks.exchange

bench-connectors: setup-kafka ## Kafka and PostgreSQL at both ends, beside Spark's own query and a plain COPY (15 minutes)
	@$(BIN)/python -m benchmarks.connectors

bench-stores: setup setup-s3 ## checkpoints of 1 GB to S3 beside plain uploads (20 minutes)
	@$(BIN)/python -m benchmarks.stores

bench-nexmark: setup ## NEXMark's queries beside PyFlink, in a venv of its own, and Spark's own operators (30 minutes)
	@$(BIN)/python -m benchmarks.nexmark

bench-models: setup ## what the models of docs/models.md predict beside what is measured (15 minutes)
	@$(BIN)/python -m benchmarks.models

bench-state: setup ## reading state beside Spark's statestore source, its memory, and bootstrapping state (25 minutes)
	@$(BIN)/python -m benchmarks.state read
	@$(BIN)/python -m benchmarks.state memory
	@$(BIN)/python -m benchmarks.state_bootstrap

bench-pyflink: setup ## the keyed bench against PyFlink, in a venv of its own
	@$(BIN)/python -m benchmarks.run --pyflink

clean: ## remove what the tools left behind
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

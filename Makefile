# Every target works on a fresh clone: it makes what it needs. `make help` lists them.
VENV := .venv
PYTHON := $(VENV)/bin/python
CLUSTER := PYTHONPATH=tests $(PYTHON) -m cluster

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.synced: requirements/dev.txt
	@command -v uv >/dev/null || python3 -m pip install --quiet --root-user-action=ignore uv
	@test -x $(PYTHON) || uv venv --quiet --python python3 $(VENV)
	uv pip sync --quiet --python $(PYTHON) --require-hashes requirements/dev.txt
	@touch $@

.PHONY: demo
demo: $(VENV)/.synced ## Cluster, images, chart, examples/01-cpu-demo.yaml, and one picture answered by real vLLM
	@$(CLUSTER) demo

.PHONY: demo-down
demo-down: $(VENV)/.synced ## Remove the demo and its cluster
	@$(CLUSTER) down

.PHONY: test
test: $(VENV)/.synced ## Every test tier that this machine allows (TIERS="lint unit" for some)
	@$(PYTHON) tests/tiers.py $(TIERS)

MINUTES := 10

.PHONY: pictures
pictures: $(VENV)/.synced ## The picture of docs/proxy.md, from a proxy with engines in several states (needs Chromium)
	@$(CLUSTER) browser
	@PYTHONPATH=operator:tests $(PYTHON) -m browser.scene docs/images/proxy-topology.png

.PHONY: soak
soak: $(VENV)/.synced ## Load the encoder-cache store on the node for MINUTES while it is collected; writes docs/images
	@PYTHONPATH=operator:tests $(PYTHON) -m cluster.soak --minutes $(MINUTES)

CONNECTOR := Example

.PHONY: damage
damage: $(VENV)/.synced ## What becomes of engines of CONNECTOR when something befalls the encoder cache: a table
	@PYTHONPATH=operator:tests $(PYTHON) -m cluster.damage --connector $(CONNECTOR)

.PHONY: legs
legs: $(VENV)/.synced ## E|P|D with real vLLM as plain processes of this machine: colours through three engines
	@PYTHONPATH=operator:tests $(PYTHON) -m cluster.legs

.PHONY: generate
generate: $(VENV)/.synced ## crds/, the chart's copy and docs/api.md from the types
	PYTHONPATH=operator $(PYTHON) -m epd.api.crd
	PYTHONPATH=operator $(PYTHON) -m epd.api.reference

LOCK := uv pip compile --quiet --upgrade --generate-hashes --no-header --no-emit-index-url

.PHONY: lock
lock: $(VENV)/.synced ## Resolve requirements/*.txt anew
	$(LOCK) pyproject.toml -o requirements/runtime.txt
	$(LOCK) --extra dev -c requirements/runtime.txt pyproject.toml -o requirements/dev.txt
	printf 'hatchling\nhatch-mypyc\npip\n' | $(LOCK) -c requirements/dev.txt - -o requirements/build.txt
	$(CLUSTER) engine --lock

SEEDS := 1000000

.PHONY: histories
histories: $(VENV)/.synced ## Play SEEDS=1000000 histories of engines and collectors; says seeds/s (EPD_SEED=n for one)
	@PYTHONPATH=operator:tests $(PYTHON) -m histories.play 0:$(SEEDS)

.PHONY: format
format: $(VENV)/.synced ## Format the sources
	$(VENV)/bin/ruff check --fix --quiet
	$(VENV)/bin/ruff format --quiet

.PHONY: bench
bench: $(VENV)/.synced ## Every benchmark, each a ratio against a peer or a limit of the same run
	@set -e; for b in benchmarks/reconcile.py benchmarks/gc; do \
	  echo "== $$b"; PYTHONPATH=operator:tests $(PYTHON) $$b; done
	@echo "== benchmarks/connector.py"  # against vLLM's own, so in vLLM's environment
	@engine=$$(PYTHONPATH=tests $(PYTHON) -c 'from cluster import engine; print(engine.environment())'); \
	  "$$engine/bin/python" benchmarks/connector.py
	@echo "== benchmarks/ttft.py"; PYTHONPATH=operator:tests $(PYTHON) benchmarks/ttft.py  # skipped without a node

ARGS :=

.PHONY: bench-proxy
bench-proxy: $(VENV)/.synced ## The proxy beside a relay and its peers; fails on a missed gate (ARGS=--quick: three gates)
	@PYTHONPATH=tests $(PYTHON) benchmarks/proxy $(ARGS)

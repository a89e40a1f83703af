# Every habit is one of these; the recipes do all set-up themselves.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c

# Tests are collected in a third of the time where what Python compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
# The theme's notice of a successor, at each build of the documentation.
export NO_MKDOCS_2_WARNING := 1

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# So many test files at a time, each on servers of its own: most of their time is waiting.
WORKERS ?= 4
# Code whose every line and branch is tested.
WHOLE := kube_sync/kube/reflector.py,kube_sync/replicator/projection.py,kube_sync/remediation/plan.py,kube_sync/admission/review.py,kube_sync/opa/analysis/*.py,kube_sync/guard/*.py
# Each of these is a world of its own: examples share a package name.
REGO := rego/system rego/kube_sync rego/packs $(wildcard rego/examples/*/)

.PHONY: help setup demo demo-policy-sync demo-kueue down up image test test-rest test-all test-kueue test-argocd test-kstatus test-node test-release release notes chart-test faults-argocd coverage unit check audit sbom fuzz bench bench-kueue soak soak-classes docs clean

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

setup: $(INSTALLED) ## Make .venv with the project and everything it needs in it

# Without --no-deps pip looks for `coverage[toml]` of its own accord, and finds a newer one.
$(INSTALLED): requirements-dev.lock pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "make: Python 3.11 or newer is needed as python3 (Debian: apt-get install python3 python3-venv)" >&2; exit 1; }
	python3 -c 'import ensurepip' 2>/dev/null || { echo "make: python3 cannot make virtual environments (Debian: apt-get install python3-venv)" >&2; exit 1; }
	echo "making $(VENV) (about half a minute)"
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: setup ## Tell the story on a real API server and OPA (STACK=compose: in containers; WITH=argocd)
	@$(BIN)/python -m tools.demo up --stack $(or $(STACK),processes) $(if $(WITH),--with $(WITH))

demo-policy-sync: setup ## Tell how policies come from a hub to its spokes, on three real API servers
	@$(BIN)/python -m tools.demo policy-sync

demo-kueue: setup ## Tell how jobs go where a policy says, with the real Kueue (built once: about eight minutes)
	@$(BIN)/python -m tools.demo kueue

up: setup ## Start the docker-compose stack (STACK=processes: without containers)
	@$(BIN)/python -m tools.demo start --stack $(or $(STACK),compose) $(if $(WITH),--with $(WITH))

image: setup ## Build the image kube-sync:dev, also where no registry is reached (else: docker build .)
	@$(BIN)/python -m tools.servers project-image

down: ## Remove what demos and up left running
	@[ ! -x $(BIN)/python ] || $(BIN)/python -m tools.demo down

# Files are handed out whole, the longest first (tests/parts.py).
RUN := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder
# COVERAGE=1 measures and holds the gates, which takes longer. What `make test-rest` adds is never
# the only test of a line.
MEASURED = $(if $(COVERAGE),--cov --cov-report=)
# SHARD=2/4 runs a quarter of the files; `make coverage` then holds the gates for all of them.
SHARDED = $(if $(SHARD),--shard=$(SHARD))

test: setup ## Prove the heart of every system on real servers; every unit test, Rego
	@opa=$$($(BIN)/python -m tools.servers path opa)
	for folder in $(REGO); do echo "opa test $$folder"; $$opa test "$$folder"; done
	$(RUN) -m "not slow" $(MEASURED) $(SHARDED) $(PYTEST)
	[ -z "$(COVERAGE)" ] || [ -n "$(SHARD)" ] || $(MAKE) --no-print-directory coverage

test-rest: setup ## Run what `make test` leaves out: scale, chaos, compose, pages, many examples
	@$(RUN) -m "slow or property" --hypothesis-profile=thorough $(SHARDED) $(PYTEST)

test-kueue: setup ## Run the tests with the real Kueue; its manager is built first (about eight minutes, once)
	@$(BIN)/python -m tools.servers path kueue
	$(BIN)/pytest --built=kueue -m built $(PYTEST)

test-kstatus: setup ## Run the tests with the real kstatus and the Lua of Argo CD, built first (a minute, once)
	@$(BIN)/python -m tools.servers path kstatus
	$(BIN)/pytest --built=kstatus -m built $(PYTEST)

test-node: setup ## Run the tests on a node with its kubelet and containers (root; built first: ten minutes, once)
	@$(BIN)/python -m tools.servers path node
	$(BIN)/pytest --built=node -m built $(PYTEST)

test-release: setup ## Publish, sign and verify a release on this machine, amd64 and arm64 (ten minutes the first time)
	@$(BIN)/python -m tools.servers path cosign
	$(BIN)/pytest --built=release -m built $(PYTEST)

# What a caller says of a release, such as the name of a tag, reaches programs by the environment
# alone: make would hand it to the shell as part of a command.
release notes: override export TO := $(value TO)
release notes: override export KEY := $(value KEY)
release notes: override export TAG := $(value TAG)

# As the release workflow calls it, and the test above.
release: setup ## Publish the image, signed (TO=registry/owner/kube-sync KEY=cosign.key; no KEY: a workflow signs)
	@[ -n "$$TO" ] || { echo "make release: say where to, as TO=registry.example.com/team/kube-sync" >&2; exit 1; }
	$(BIN)/python -m tools.supply release --to "$$TO" $${KEY:+--key "$$KEY"}

notes: setup ## Print what the changelog says of a release (TAG=v0.1.0); the tag has to be the package's version
	@$(BIN)/python -m tools.supply notes "$$TAG"

coverage: setup ## Hold the gates for what COVERAGE=1 measured, of all shards (.coverage.*) if there are
	@if compgen -G ".coverage.*" >/dev/null; then $(BIN)/coverage combine; fi
	$(BIN)/coverage report --fail-under=95
	$(BIN)/coverage report --fail-under=100 --include=$(WHOLE)

test-all: setup ## Run everything, and hold the gates of coverage
	@$(MAKE) --no-print-directory test COVERAGE=1
	$(MAKE) --no-print-directory test-rest
	$(MAKE) --no-print-directory test-argocd test-kueue test-kstatus test-release

test-argocd: setup ## Build Argo CD's ApplicationSet controller (once), and try placements on it
	@$(BIN)/python -m tools.servers path argocd
	$(BIN)/pytest --built=argocd -m built $(PYTEST)

chart-test: setup ## Install, upgrade, roll back and remove the Helm chart on a real API server
	@$(BIN)/pytest tests/unit/tools/charting tests/integration/test_chart.py tests/integration/test_chart_release.py $(PYTEST)

faults-argocd: setup ## Count the Applications it deletes under each fault (FAULTS=--help for a smaller table)
	@$(BIN)/python -m tools.soak.argocd $(FAULTS)

# One file in seconds, as `make unit FILE=tests/unit/kube/test_lease.py`.
unit: setup ## Run the unit tests, or one file of tests (FILE=…)
	@$(BIN)/pytest $(if $(FILE),,--numprocesses=$(WORKERS)) $(or $(FILE),tests/unit) $(PYTEST)

# What can be installed. What kube-score finds in it and stays is named on the object, with the reason.
KUSTOMIZATIONS := manifests/base manifests/labelled manifests/placement-decisions manifests/ocm-placement-decisions \
	manifests/ocm-placement-decisions-argocd manifests/argocd manifests/argocd-applicationsets \
	manifests/argocd-clusters manifests/argocd-health manifests/argocd-policy-health \
	manifests/multikueue manifests/openreports manifests/webhook \
	manifests/webhook-scheduling manifests/webhook-metadata manifests/scheduler-name \
	manifests/crds manifests/examples/colorpolicy manifests/scheduling \
	manifests/scheduling-options manifests/scheduling-rbac manifests/metadata-rbac \
	manifests/topology-rbac manifests/topology-data-rbac manifests/policy-sync-rbac \
	manifests/policy-sync-direct-rbac manifests/policy-sync-spoke-rbac \
	manifests/components/prometheus-rules manifests/components/grafana-dashboards \
	manifests/overlays/minimal manifests/overlays/production manifests/overlays/hub \
	manifests/overlays/spoke
# As for the oldest Kubernetes that is promised (docs/install.md).
SCORED := score --kubernetes-version=v1.30 --exit-one-on-warning --output-format=ci -

check: setup ## Check format, lint, layers, types, Rego, manifests and pages; no server needed
	@$(BIN)/ruff format --check --quiet . || { echo "make check: run $(BIN)/ruff format ." >&2; exit 1; }
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	opa=$$($(BIN)/python -m tools.servers path opa)
	kustomize=$$($(BIN)/python -m tools.servers path kustomize)
	kube_score=$$($(BIN)/python -m tools.servers path kube-score)
	actionlint=$$($(BIN)/python -m tools.servers path actionlint)
	$$actionlint -shellcheck=$(BIN)/shellcheck
	$(BIN)/shellcheck pullrequest/*.sh
	$(BIN)/pre-commit validate-manifest .pre-commit-hooks.yaml
	$$opa fmt --fail --list rego
	for folder in $(REGO); do
		$$opa check --strict "$$folder"
		$$opa test --coverage --threshold 100 --fail-on-empty "$$folder" >/dev/null || { $$opa test "$$folder"; exit 1; }
	done
	report=$$(KUBE_SYNC_OPA_BINARY=$$opa $(BIN)/kube-sync test tests/scenarios rego/packs) || { echo "$$report"; exit 1; }
	for folder in $(KUSTOMIZATIONS); do
		said=$$($$kustomize build "$$folder" | $$kube_score $(SCORED)) || { echo "$$folder:"; grep -Ev '^\[(OK|SKIPPED)\]' <<<"$$said"; exit 1; } >&2
	done
	$(BIN)/python -m tools.observing --check || { echo "make check: run $(BIN)/python -m tools.observing" >&2; exit 1; }
	$(BIN)/python -m tools.documenting --check || { echo "make check: run $(BIN)/python -m tools.documenting" >&2; exit 1; }
	$(BIN)/python -m tools.charting --check || { echo "make check: run $(BIN)/python -m tools.charting" >&2; exit 1; }
	site=$$($(BIN)/mkdocs build 2>&1) || { echo "$$site" >&2; exit 1; }
	if promtool=$$($(BIN)/python -m tools.servers path promtool); then
		$$promtool check rules manifests/prometheus/rules.yaml >/dev/null
		$$promtool test rules manifests/prometheus/rules_test.yaml >/dev/null
	else
		echo "make check: the rules for Prometheus are left out, promtool is not to be had" >&2
	fi
	$(BIN)/python -m tools.supply check
	$(BIN)/python -m tools.supply audit
	echo "make check: all good"

docs: setup ## Write the documentation as a site to build/site
	@$(BIN)/mkdocs build --quiet
	echo "make docs: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

audit: setup ## Ask what is known against what is shipped, and against the servers built here
	@$(BIN)/python -m tools.supply audit

sbom: setup ## Write what the image holds to build/sbom.cdx.json (CycloneDX)
	@$(BIN)/python -m tools.supply sbom

# How many odd inputs `make fuzz` makes; SEED=… repeats a run.
N ?= 100000

fuzz: setup ## Give every parser odd input (N=100000 SEED=…); what does harm is shown, made small
	@$(BIN)/python -m tools.fuzz --inputs $(N) --seed "$(SEED)"

bench: setup ## Run the benchmarks: ratios against a floor measured in the same run
	@$(BIN)/python -m benchmarks --headlines

bench-kueue: setup ## Compare the dispatcher of MultiKueue with Kueue's own, on the same jobs (builds Kueue once)
	@$(BIN)/python -m benchmarks --kueue

# Of a soak; SEED and more (SOAK=--help) as wanted.
MINUTES ?= 30
OBJECTS ?= 50000
CLUSTERS ?= 100
POLICIES ?= 200
RATE ?= 100
SEED ?=

soak: setup ## Load the whole installation while parts of it fail, and hold it to its promises
	@$(BIN)/python -m tools.soak --minutes $(MINUTES) --objects $(OBJECTS) --clusters $(CLUSTERS) --policies $(POLICIES) --rate $(RATE) $(if $(SEED),--seed $(SEED)) $(SOAK)

# Of answers by class; SEED and more (SOAK=--help) as wanted.
REVIEWS ?= 1000000

soak-classes: setup ## Hold the webhook's answers by class against OPA's while things change and fail
	@$(BIN)/python -m tools.soak.classes --reviews $(REVIEWS) $(if $(SEED),--seed $(SEED)) $(SOAK)

clean: down ## Remove what was made here (not the cache of built servers)
	rm -rf $(VENV) .run build .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis

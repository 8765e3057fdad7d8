PYTHON := .venv/bin/python
OFFPEAK_HOME ?= var
PORT ?= 8000
export OFFPEAK_HOME PORT

.DEFAULT_GOAL := help
.PHONY: help up down test check lint bench simulation departures soak lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: .venv/installed ## Install, migrate, fill a demo market and serve it; Ctrl-C ends it
	@OFFPEAK_DEMO=1 exec $(PYTHON) manage.py up

down: ## End a market that `make up` left running under OFFPEAK_HOME
	@test -x $(PYTHON) && $(PYTHON) manage.py down || true

test: .venv/tested ## Run every test; T=tests/listings narrows them
	$(PYTHON) -m pytest $(if $(T),$(T),-n 3)

lint: .venv/tested ## Format, lint, types, import contracts
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy .
	.venv/bin/lint-imports

check: lint test ## What CI runs

bench: .venv/tested ## Print benchmarks with their ratio to a limit of this machine
	$(PYTHON) -m tests.benchmarks

simulation: .venv/tested ## Replay the traces in OFFPEAK_TRACES; write their page and plots anew
	$(PYTHON) -m tests.simulation

departures: .venv/tested ## Take hosts away from under work, 200 times and by load; write that page anew
	$(PYTHON) -m tests.departures

soak: .venv/tested ## Run the slow soaks
	$(PYTHON) -m pytest -m soak

lock: .venv/tested ## Pin and hash what requirements.in and tests/requirements.in ask for
	$(PYTHON) -m pip install --quiet uv
	.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header requirements.in --output-file requirements.txt
	.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header tests/requirements.in --constraint requirements.txt --output-file tests/requirements.txt

clean: down ## Remove the environment and the data directory
	test ! -L $(OFFPEAK_HOME)/demo/work || rm -rf "$$(readlink $(OFFPEAK_HOME)/demo/work)"
	rm -rf .venv $(OFFPEAK_HOME)

.venv/python:
	@for python in $(or $(BASE_PYTHON),python3 python3.13 python3.12 python3.11); do \
	  $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	    && exec $$python -m venv .venv && touch $@ && exit 0; \
	done; test -x $(PYTHON) && touch $@ || { echo "Python 3.11, 3.12 or 3.13 is needed (BASE_PYTHON names one)"; exit 1; }

.venv/installed: .venv/python requirements.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" -m marketplace.sdk "$$@"\n' '$(CURDIR)' '$(CURDIR)/$(PYTHON)' > .venv/bin/offpeak
	@printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" -m metering.agent "$$@"\n' '$(CURDIR)' '$(CURDIR)/$(PYTHON)' > .venv/bin/offpeak-agent
	@chmod +x .venv/bin/offpeak .venv/bin/offpeak-agent
	@touch $@

.venv/tested: .venv/installed tests/requirements.txt tests/install-tools.sh
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.txt
	@sh tests/install-tools.sh
	@touch $@

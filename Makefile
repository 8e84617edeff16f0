# Everything a person runs. Each target sets up what it needs in .venv, once per change of pyproject.toml.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
SOURCES := agent tests scripts
TESTS ?= tests/unit tests/vectors tests/fuzz tests/host tests/vm
MINUTES ?= 10
# The guest's tests take two workers (ARGS="-n 0" for one); for others starting them is not worth it.
WORKERS := $(if $(findstring tests/vm,$(TESTS)),-n 2)

export PYTHON

.DEFAULT_GOAL := help
.PHONY: help run demo test lint bench soak vm deb clean venv venv-test

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

run: venv ## set up and run the agent in the foreground on this host (ARGS="--dry-run")
	@exec $(BIN)/numapin run $(ARGS)

demo: venv-test ## the agent at work in a four-node guest: topology, containers, status, a shell
	@PYTHONPATH=tests exec $(BIN)/python -m support.demo

test: venv-test ## set up and run every test, those in the guest included (TESTS="tests/unit" for some)
	@$(BIN)/python -m pytest $(WORKERS) $(TESTS) $(ARGS)

lint: venv-test ## ruff, format and mypy --strict over package and tests
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy agent/numapin tests scripts

bench: venv-test ## print the benchmark figures
	@PYTHONPATH=tests exec $(BIN)/python tests/bench/run.py $(ARGS)

soak: venv-test ## fuzzing and containers churning under a daemon that is killed, MINUTES=10 of each
	@PYTHONPATH=tests exec nice $(BIN)/python tests/soak/run.py --minutes $(MINUTES)

vm: venv-test ## a shell in the four-node test guest
	@PYTHONPATH=tests exec $(BIN)/python -m support.guest shell

deb: venv ## build build/numapin_<version>_all.deb for Debian 13
	@packaging/build-deb

clean: ## remove what the other targets made in the checkout
	rm -rf .venv build dist agent/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find agent tests scripts -name __pycache__ -prune -exec rm -rf {} +

venv:
	@scripts/venv run

venv-test:
	@scripts/venv test

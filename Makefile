# Everything a newcomer needs: `make demo`, `make test`, `make test-agents`, `make check`, `make docs`, `make bench`.
# Each sets up its virtual environment in this clone, and installs nothing outside it.

# The first Python that is new enough; `make PYTHON=/path/to/python3.12 test` chooses another.
PYTHON ?= $(firstword $(foreach name,python3 python python3.14 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(name))))

VENV := .venv
DEMO_VENV := .cache/demo-venv
MEMORY_VENV := .cache/memory-venv
BIN := $(VENV)/bin
REWRITTEN := .cache/rewritten

# More workers than cores: most tests wait for terminals and processes.
WORKERS ?= 8

# The agents that `make test-agents` drives; gemini, opencode and copilot are also available.
AGENTS ?= claude codex qwen pi aider
AGENT_WORKERS ?= 2

# --fresh-env reads every page again: Sphinx does not repeat the warnings of a cached page.
SPHINX := $(BIN)/python -m sphinx --quiet --fail-on-warning --fresh-env --nitpicky -d .cache/doctrees docs .cache/site

# Without byte code, each process would compile all of relay.
unexport PYTHONDONTWRITEBYTECODE
export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/.cache/hypothesis

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-agents test-agents-newest test-memory test-mutations check docs man format bench bench-fleet bench-memory pictures record dist test-install clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(DEMO_VENV)/.stamp  ## two wrapped agents greet each other
	@$(DEMO_VENV)/bin/relay demo
	@command -v relay >/dev/null || echo "First install the command: pipx install . (or: uv tool install .)"

test: $(VENV)/.linters $(REWRITTEN)  ## all tests
	@$(BIN)/python -m compileall -q -x '/test_' relay relay_memory tests  # pytest compiles its own
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations 20 --durations-min 1 $(ARGS)

# pytest compiles each module of tests with its own asserts. In a new clone, each worker would compile them all.
$(REWRITTEN): | $(VENV)/.linters
	@for tests in 'tests/[a-q]*/' 'tests/[r-z]*'; do \
		$(BIN)/pytest --collect-only -q --ignore tests/real_agents --ignore tests/memory_backends $$tests >/dev/null & \
	done; wait
	@touch $@

test-agents: $(VENV)/.stamp  ## real agents against a scripted model; AGENTS="claude qwen" chooses
	@$(BIN)/python tests/real_agents/install.py $(AGENTS)
	@$(BIN)/pytest -n $(AGENT_WORKERS) tests/real_agents --agents "$(AGENTS)" $(ARGS) || { \
		echo "Retrying what failed, one test at a time: real agents run in real time, and time out on a busy machine."; \
		$(BIN)/pytest tests/real_agents --agents "$(AGENTS)" --last-failed --last-failed-no-failures none; }

test-agents-newest: export AGENTS_NEWEST := 1
test-agents-newest: $(VENV)/.stamp  ## the same with the newest versions; docs/AGENTS.md says what passed
	@$(BIN)/python tests/real_agents/install.py $(AGENTS)
	@$(BIN)/pytest -n $(AGENT_WORKERS) tests/real_agents --agents "$(AGENTS)" --agents-table docs/AGENTS.md $(ARGS)

test-long: $(VENV)/.linters .cache/amqtt  ## all tests with their full loads: kills at every step, two at once, thousands of attacks, ...
	@RELAY_LONG=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal --timeout 900 -o faulthandler_timeout=4000 $(ARGS)

test-memory: $(MEMORY_VENV)/.stamp  ## mem0 and qdrant as memory backends, with real PostgreSQL and Chroma servers
	@$(MEMORY_VENV)/bin/pytest tests/memory_backends $(ARGS)

test-mutations: $(VENV)/.linters  ## break the code in one place at a time, and see which tests notice; takes an hour
	@$(BIN)/python -m tools.mutations $(ARGS)

check: $(VENV)/.checks  ## format, lint, types, layers, spelling, and the site with all of its links
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted: run 'make format'."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --cache-dir .cache/import-linter
	@$(BIN)/codespell
	@$(SPHINX)

docs: $(VENV)/.checks  ## the site, in .cache/site
	@$(SPHINX)
	@echo "Open .cache/site/index.html."

man: $(VENV)/.checks  ## rewrite the man page from the code
	@$(BIN)/python -m docsite

format: $(VENV)/.checks  ## rewrite the code in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.stamp  ## compare relay's speed with other programs
	@$(BIN)/python -m benchmarks

bench-fleet: $(VENV)/.stamp  ## how relay scales: 10 to 500 simulated agents, 60 sessions, a soak; about seven minutes
	@$(BIN)/python -m benchmarks.fleet

bench-memory: $(VENV)/.stamp  ## what the memory store finds, and how fast; about three minutes
	@$(BIN)/python -m benchmarks.memory

pictures: $(VENV)/.linters  ## redraw docs/img/*.svg from the recordings next to them, and take those of relay web anew
	@$(BIN)/python -m tools.pictures
	@$(BIN)/python -m tools.pictures.web

record: $(VENV)/.stamp  ## record the pictures' sessions again, and redraw them; best on a quiet machine
	@$(BIN)/python -m tools.pictures --record

dist: $(VENV)/.stamp  ## build this commit's wheel and sdist in dist/, reproducibly
	@$(BIN)/python -m tools.dist

test-install: $(VENV)/.stamp  ## install the commit with pip, pipx and uv on each available Python; takes minutes
	@$(BIN)/python -m tools.install_trial $(ARGS)

clean:  ## remove the virtual environments and caches
	rm -rf $(VENV) .cache dist build

# pip 25.1 is the first version that reads dependency groups (PEP 735). Python compiles what it imports, a tenth of it all.
$(VENV)/.stamp: pyproject.toml
	@$(call create,$(VENV))
	@$(BIN)/python -m pip install --quiet --no-compile --group test --editable .
	@touch $@

$(VENV)/.checks: $(VENV)/.stamp
	@$(BIN)/python -m pip install --quiet --no-compile --group check
	@touch $@

# Meanwhile, pytest's byte code of the tests: without it, each worker would rewrite all of their assertions.
# Errors in tests are reported when they run.
$(VENV)/.linters: $(VENV)/.stamp
	@$(BIN)/python -m pip install --quiet --no-compile --group linters --group browser & pip=$$!; \
	find tests -name 'test_*.py' | xargs -n 200 -P 2 $(BIN)/pytest --collect-only -qq >/dev/null; wait $$pip
	@touch $@

.cache/amqtt: $(VENV)/.stamp
	@$(BIN)/python -m pip install --quiet --target $@ --group amqtt

$(DEMO_VENV)/.stamp: pyproject.toml
	@$(call create,$(DEMO_VENV))
	@$(DEMO_VENV)/bin/python -m pip install --quiet --editable .
	@touch $@

$(MEMORY_VENV)/.stamp: pyproject.toml
	@$(call create,$(MEMORY_VENV))
	@$(MEMORY_VENV)/bin/python -m pip install --quiet --group memory --editable '.[mem0,qdrant]'
	@touch $@

define create
	test -n "$(PYTHON)" || { echo "relay needs Python 3.11 or newer: install it, or run 'make PYTHON=... $(MAKECMDGOALS)'." >&2; exit 1; }; \
	echo "Setting up $(1) (once; some 20 seconds) ..."; \
	mkdir -p $(dir $(1)) && $(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet 'pip>=25.1'
endef

# Two commands do everything: `make demo` and `make test`. Each installs what it needs into .venv first.
# Needs make and Python >= 3.11 with venv and pip; name another Python with PYTHON=…

.DEFAULT_GOAL := help
.PHONY: help demo check test test-engines bench lock run-venv test-venv clean

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 22

demo: run-venv ## a few thousand prompts over 8 emulated servers, in about a minute
	@$(BIN)/headrace demo

check: test-venv ## format, lint, types, layers, docs, unit tests (< 3 min); changes no file
	@scripts/check

test: test-venv ## check, and loopback, crash, emulator and one real engine, vLLM (up to 15 min)
	@scripts/check --no-tests
	@echo "== tests: unit, contract, system, vLLM"
	@$(PYTEST) -m "not engine_sglang and not engine_llamacpp" tests

test-engines: test-venv ## every real engine: vLLM, SGLang, llama.cpp (up to 45 min)
	@echo "== tests: real engines (HEADRACE_FULL=1 runs all prompts)"
	@$(PYTEST) tests/engines

bench: test-venv ## the figures of bench/README.md, on this machine (about 20 min)
	@$(BIN)/python bench/driver.py all

lock: ## writes requirements/*.txt anew from pyproject.toml
	@scripts/lock

clean: ## takes .venv and the caches of the tools away
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis demo-out

run-venv:
	@python=$$(scripts/find-python) && $$python scripts/bootstrap run

test-venv:
	@python=$$(scripts/find-python) && $$python scripts/bootstrap test

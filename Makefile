# Two commands on a fresh machine do everything: `make demo` and `make test`. As root they also install what the
# lab needs from the distribution; without root, `make test` says what it leaves out.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROOT := $(shell id -u)
# Real logs of other people, where a folder of them lies beside the checkout; never part of it.
export OLLAMACTL_PUBLIC_LOGS ?= $(abspath $(firstword $(wildcard ../*/public-logs)))
# Debian's packages: a real systemd for the lab, what pystemd and the stand-ins are compiled with, what tests call.
PACKAGES := systemd systemd-container dbus libsystemd-dev python3-pystemd pkg-config gcc g++ libc6-dev python3-dev \
	python3-venv python3-click python3-psutil python3-jinja2 iproute2 procps curl strace nginx-light chromium \
	ca-certificates mmdebstrap debian-archive-keyring lintian man-db zsh fish openssh-client

# Tests that neither boot a machine nor load a model, but for those that are marked.
LIGHT := tests/unit tests/contract tests/machines tests/system tests/darwin
# They run beside one another, on all cores.
BESIDE := -n auto --dist worksteal

.PHONY: help setup demo test test-unit test-lab test-packages test-fleet bench-fleet test-engine check bench engine-grid lint deb release clean

help:
	@echo "make demo        set-up and the main job on an embedded lab (root)"
	@echo "make test        set-up and all tests (without root: all but the lab)"
	@echo "make check       lint, types and the quick tests that need neither root nor the lab"
	@echo "make bench       the figures, side by side (root)"
	@echo "make engine-grid the whole grid of engine loads behind the memory model (long)"
	@echo "make deb         the Debian package, into dist/"
	@echo "make release     all that is released, into dist/, with sums"
	@echo "make clean       what set-up and tests made, gone"

# Compiled as an installed package is, whatever PYTHONDONTWRITEBYTECODE says: the tests and the bench start it often.
setup: $(VENV)/.ready
	@$(BIN)/python -m compileall -q ollamactl

$(VENV)/.ready: pyproject.toml packaging/setup.sh
	PYTHON="$(PYTHON)" PACKAGES="$(PACKAGES)" sh packaging/setup.sh "$(VENV)"

lint: setup
	$(BIN)/ruff check ollamactl tests packaging
	$(BIN)/mypy

demo: setup
	@if [ "$(ROOT)" != 0 ]; then echo "make demo boots a machine: run it as root" >&2; exit 1; fi
	$(BIN)/python -m tests.lab.demo

check: lint
	$(BIN)/pytest $(BESIDE) $(LIGHT) -m "not lab and not engine and not long"

test: export OLLAMACTL_LAB = $(if $(filter 0,$(ROOT)),required,)
test: lint
	@if [ "$(ROOT)" != 0 ]; then echo "without root: the tests that boot a machine are left out (sudo make test)"; fi
	$(BIN)/pytest $(BESIDE) $(LIGHT) -m "not lab and not engine"
	$(BIN)/pytest $(LIGHT) -m "lab or engine"
	$(BIN)/pytest tests/engine tests/lab --durations=15
	$(BIN)/pytest tests/packages tests/fleet --durations=10 --timeout=900

test-lab: setup
	OLLAMACTL_LAB=required $(BIN)/pytest tests/lab

test-packages: setup
	OLLAMACTL_LAB=required $(BIN)/pytest tests/packages --timeout=900

test-fleet: setup
	OLLAMACTL_LAB=required $(BIN)/pytest tests/fleet --timeout=900

bench-fleet: setup
	@if [ "$(ROOT)" != 0 ]; then echo "make bench-fleet boots machines: run it as root" >&2; exit 1; fi
	$(BIN)/python -m tests.fleet.bench

test-engine: setup
	$(BIN)/pytest tests/engine

bench: setup
	@if [ "$(ROOT)" != 0 ]; then echo "make bench boots a machine: run it as root" >&2; exit 1; fi
	$(BIN)/python -m tests.bench

engine-grid: setup
	ENGINE_GRID=1 nice -n 10 $(BIN)/pytest tests/engine --timeout=3600
	nice -n 10 $(BIN)/python -m tests.engine

deb: setup
	$(BIN)/python packaging/deb/build.py

release: setup
	$(BIN)/python packaging/release.py

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

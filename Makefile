# Everything a newcomer needs: each target does its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test
DOCS_STAMP := $(VENV)/.installed-docs
WORKERS ?= 2

.PHONY: up install browser screenshots docs test coverage test-slow test-slow-slice check bench kubernetes test-kubernetes image lock clean

up: $(STAMP)
	@$(BIN)/dovetail up $(ARGS)

install: $(STAMP)

# uv where present, else pip: the same locked packages either way, checked by their hashes. A lock is complete, so pip
# resolves nothing (--no-deps): its resolver takes `httpx2[http2]` for another package than the locked `httpx2` and
# fails as soon as a newer one is published. All modules are compiled once, so that no command has to do it at its start.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dovetail needs Python 3.11 or later; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python requirements/lab.lock
	@echo "installing into $(VENV) …"
	@$(call locked,lab)
	@touch $@

$(DOCS_STAMP): $(STAMP) requirements/docs.lock
	@echo "installing what builds the site …"
	@$(call locked,docs)
	@touch $@

$(TEST_STAMP): $(STAMP) requirements/test.lock
	@echo "installing the tests' tools …"
	@$(call locked,test)
	@touch $@

define locked
if command -v uv >/dev/null 2>&1; then \
	  uv pip install -q --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/$(1).lock && \
	  uv pip install -q --python $(BIN)/python --no-deps -e .; \
	else \
	  $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/$(1).lock && \
	  $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .; \
	fi
@$(BIN)/python -m compileall -q src
endef

# After a change to the dependencies in pyproject.toml.
lock:
	@uv lock -q
	@uv export -q --frozen --no-emit-project --no-header --no-annotate -o requirements/run.lock >/dev/null
	@uv export -q --frozen --no-emit-project --no-header --no-annotate --extra lab -o requirements/lab.lock >/dev/null
	@uv export -q --frozen --no-emit-project --no-header --no-annotate --extra docs -o requirements/docs.lock >/dev/null
	@uv export -q --frozen --no-emit-project --no-header --no-annotate --extra lab --extra docs --extra test -o requirements/test.lock >/dev/null

# An OCI image archive and its SBOM in dist/, without a container daemon; ARGS="--arch arm64" for another platform.
image: $(STAMP)
	@$(BIN)/python scripts/build_image.py $(ARGS)

# The page is tested in a real browser; where there is none and none can be installed, those tests are left out.
browser:
	@command -v chromium >/dev/null 2>&1 || [ -n "$$DOVETAIL_CHROMIUM" ] || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && echo "installing chromium …" && \
		  apt-get update -qq && apt-get install -qq -y chromium fonts-noto-cjk >/dev/null; } || \
		echo "no browser: the tests of the page are left out; apt-get install chromium, or set DOVETAIL_CHROMIUM" >&2

# A test that drives processes in real time may lose a race on a busy host: a few such failures are run once more, alone,
# and named.
test: $(TEST_STAMP) browser
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not kubernetes and not slow$$( \
		command -v chromium >/dev/null 2>&1 || [ -n "$$DOVETAIL_CHROMIUM" ] || echo ' and not browser')" $(ARGS) || \
		{ [ $$? = 1 ] && $(BIN)/python scripts/retry_real_time.py; }

# The suite with every line and branch counted: twice the processor time, so it is a target of its own. Python 3.14
# counts branches with sys.monitoring, which costs little.
coverage: $(TEST_STAMP)
	@rm -f .coverage .coverage.*
	@COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 14) else "ctrace")') \
		$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadfile -m 'not kubernetes and not slow' $(ARGS)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

test-slow: $(TEST_STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'slow and not kubernetes' $(ARGS)

# The first case of the slow sweeps: under two minutes, so that they cannot rot unseen.
test-slow-slice: $(TEST_STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) -m 'slow and not kubernetes' --first-case $(ARGS) \
		tests/controllers/test_fault_sweep.py tests/lab/apiserver/test_fuzz.py tests/scenarios/test_random_scenarios.py

check: $(TEST_STAMP)
	@$(BIN)/ruff format --check src tests bench scripts
	@$(BIN)/ruff check src tests bench scripts
	@$(BIN)/python scripts/check_words.py
	@$(BIN)/deptry src
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_cycles.py
	@$(BIN)/python scripts/build_messages.py --check
	@$(BIN)/python scripts/build_diagrams.py --check
	@$(BIN)/python scripts/build_reference.py --check

bench: $(TEST_STAMP)
	@$(BIN)/python -m bench $(ARGS)

# A real control plane, built once into a cache outside the tree: the judge of the lab.
kubernetes:
	@kubernetes/build
	@kubernetes/helm
	@kubernetes/vpa

# Real processes in real time race with each other on a busy host: what fails is run once more, alone, and named.
test-kubernetes: $(TEST_STAMP) kubernetes
	@$(BIN)/python -m pytest -m 'kubernetes and not slow' $(ARGS) || { \
		echo "retrying, alone:"; \
		$(BIN)/python -m pytest -m 'kubernetes and not slow' --last-failed --last-failed-no-failures none --collect-only $(ARGS); \
		$(BIN)/python -m pytest -m 'kubernetes and not slow' --last-failed --last-failed-no-failures none -rA --show-capture=no $(ARGS); }

# The pictures of the docs, from the real page of a real lab.
screenshots: $(TEST_STAMP) browser
	@$(BIN)/python scripts/build_screenshots.py $(ARGS)

# The documentation site in both languages, for a browser and the file system: dist/site/index.html.
docs: $(DOCS_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict
	@echo "dist/site/index.html"

clean:
	@rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis

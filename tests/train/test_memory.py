"""Memory: what a step needs is compared with what is free before it is tried; running out is one line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import Toy, remains, toy_bundle

import clearhead
from clearhead import malloc
from clearhead.errors import TrainError
from clearhead.tasks import (
    CausalLM,
    LabelledExample,
    MaskedLM,
    SpecialIds,
    Task,
    TextClassification,
    TextPair,
    TextToText,
    TokenMasking,
)
from clearhead.train import (
    SGD,
    Trainer,
    Training,
    check_memory,
    checkpoints,
    free_memory,
    memory,
    read_log,
    step_memory,
)
from clearhead.train.freeze import frozen
from clearhead.train.memory import is_out_of_memory

SIZE = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 4, "intermediate_size": 64,
        "vocab_size": 500, "max_position_embeddings": 64}  # fmt: skip
TEXTS = [[5 + (i * j) % 400 for j in range(1, 3 + i % 50)] for i in range(1, 200)]


def bert(head: str = "labels") -> clearhead.Bundle:
    return clearhead.build("bert", task=head, **SIZE)


def classify(tokens: int = 640) -> TextClassification:
    rows = [LabelledExample(text, len(text) % 2) for text in TEXTS]
    return TextClassification({"train": rows}, pad=0, tokens=tokens)


def test_the_largest_batch_is_the_largest_of_the_epoch() -> None:
    for task in (
        classify(),
        TextToText({"train": [TextPair(t, t[::2]) for t in TEXTS]}, ids=SpecialIds(0, 1, 2), tokens=640),
    ):
        sizes = [
            sum(x.numel() for name, x in vars(b).items() if name in ("ids_BT", "source_BT", "target_BT"))
            for b in task.batches("train")
        ]
        largest = vars(task.largest_batch())
        found = sum(largest[name].numel() for name in ("ids_BT", "source_BT", "target_BT") if name in largest)
        assert found == max(sizes) > min(sizes)


def saved_bytes(bundle: clearhead.Bundle, task: Task[Any]) -> int:
    """What autograd really keeps for the backward pass of the largest batch, parameters apart."""
    own = {p.untyped_storage().data_ptr() for p in bundle.model.parameters()}
    kept: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss = task.loss(bundle.model.train(), task.largest_batch())
        assert loss.requires_grad
        return sum(kept.values())


@pytest.mark.parametrize("freeze", [(), ("tower.embed", "tower.positions", "tower.blocks.[0-1].*")])
def test_the_estimate_is_close_to_what_autograd_keeps_and_not_above(freeze: tuple[str, ...]) -> None:
    bundle, task = bert(), classify()
    with frozen(bundle, freeze) as found:
        estimated = step_memory(bundle, task, Training(steps=1, optimizer=SGD()))
        real = saved_bytes(bundle, task) + 4 * found.trainable
    assert estimated is not None and 0.6 * real < estimated < 1.05 * real


def test_what_is_frozen_needs_no_moments_and_masked_texts_few_logits() -> None:
    bundle, training = bert(), Training(steps=1)
    weights = 4 * bundle.parameters
    adam = step_memory(bundle, classify(), training)
    sgd = step_memory(bundle, classify(), Training(steps=1, optimizer=SGD()))
    momentum = step_memory(bundle, classify(), Training(steps=1, optimizer=SGD(momentum=0.9)))
    assert adam - sgd == 2 * weights and momentum - sgd == weights
    assert step_memory(bundle, classify(), Training(steps=1, ema=0.9)) - adam == weights
    hide = TokenMasking(mask=4, vocab=500, special=frozenset(range(5)))
    masked = MaskedLM({"train": TEXTS}, hide=hide, pad=0, tokens=640)
    whole = CausalLM({"train": TEXTS}, length=50, rows=13, pad=0)
    logits = 640 * 500 * 12
    assert step_memory(bert("tokens"), whole, training) - step_memory(bert("tokens"), masked, training) > (
        0.7 * logits
    )


def test_a_step_that_does_not_fit_is_refused_before_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, task, training = bert(), classify(), Training(steps=2)
    needed = step_memory(bundle, task, training)
    monkeypatch.setattr(memory, "available_memory", lambda: needed)
    check_memory(bundle, task, training)  # what fits exactly is tried
    monkeypatch.setattr(memory, "available_memory", lambda: needed - 1)
    with pytest.raises(TrainError) as caught:
        Trainer(bundle, task, training, tmp_path / "run").run()
    message = str(caught.value)
    assert message.startswith(f"a step of this run needs about {needed / 1e9:.3g} GB on cpu and ")
    for way in ("--batch-size", "--max-length", "--train.micro", "Tower.recompute=True", "--freeze"):
        assert way in message
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(memory, "available_memory", lambda: None)  # a system that does not say
    check_memory(bundle, task, training)
    assert step_memory(toy_bundle(), Toy(), training) is None  # a task that does not know its largest batch


def test_activation_checkpointing_is_a_way_out() -> None:
    plain, spare = bert(), bert()
    spare.spec = spare.spec.edit(clearhead.nn.Tower, recompute=True)
    plain_needs, needs = (step_memory(b, classify(), Training(steps=1)) for b in (plain, spare))
    assert needs < 0.7 * plain_needs


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "mps", "python"],
)
@pytest.mark.parametrize("where", ["step", "validation"])
def test_running_out_of_memory_is_one_line_and_the_checkpoint_is_intact(
    error: Exception, where: str, tmp_path: Path
) -> None:
    class Greedy(Toy):
        def loss(self, model: Any, batch: Any) -> torch.Tensor:
            if taken and where == "step":
                raise error
            return super().loss(model, batch)

        def score(self, model: Any, split: str) -> dict[str, float]:
            raise error

    def before(step: int, micro: int) -> None:
        if step == 3:
            taken.append(step)

    taken: list[int] = []
    training = Training(steps=4, save_every=2, valid_every=2 if where == "validation" else None)
    with pytest.raises(
        TrainError, match=r"ran out of memory.*; the checkpoint of step 2 is intact: resume with"
    ):
        Trainer(toy_bundle(), Greedy(before=before), training, tmp_path).run()
    assert list(checkpoints(tmp_path)) == [2] and [r["step"] for r in read_log(tmp_path)] == [1, 2]
    Trainer(toy_bundle(), Toy(), training, tmp_path).run()
    Trainer(toy_bundle(), Toy(), training, tmp_path / "whole").run()
    assert remains(tmp_path)["weights"] == remains(tmp_path / "whole")["weights"]


def test_other_errors_are_not_taken_for_memory(tmp_path: Path) -> None:
    class Broken(Toy):
        def loss(self, model: Any, batch: Any) -> torch.Tensor:
            raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Trainer(toy_bundle(), Broken(), Training(steps=1), tmp_path).run()
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value), "what torch itself says has changed"


def test_free_memory_obeys_ulimit_and_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import resource
from clearhead.malloc import available_memory
resource.setrlimit(resource.RLIMIT_AS, (3 * 10**8, 3 * 10**8))
print(available_memory())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 10**8 < int(run.stdout) < 3 * 10**8
    assert free_memory(torch.device("meta")) is None
    whole = malloc.available_memory()
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 150\n")
    monkeypatch.setattr(malloc, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert abs(malloc.available_memory() - whole) < 2**30
    (tmp_path / "memory.max").write_text("1000\n")
    assert malloc.available_memory() == 250

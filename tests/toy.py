"""A toy to train: a tiny GPT-2, and a task of random ids in rows of ragged lengths."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import clearhead
from clearhead.bundle import Bundle
from clearhead.nn.layers import generator
from clearhead.tasks import Better
from clearhead.train import Training, checkpoints, read_log, without_timing

VOCAB = 19
LOSS = Better("loss", larger=False)


def toy_bundle(dropout: float = 0.1, dtype: torch.dtype = torch.float32, seed: int = 0) -> Bundle:
    size = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 16, "vocab_size": VOCAB}
    drop = {"attn_pdrop": dropout, "resid_pdrop": dropout, "embd_pdrop": dropout}
    return clearhead.build("gpt2", seed=seed, dtype=dtype, **size, **drop)


@dataclass
class Rows:
    ids_BT: Tensor
    real_BT: Tensor

    @property
    def targets(self) -> int:
        return int(self.real_BT[:, 1:].sum())


@dataclass
class Toy:
    """`before` is called with step and micro before each batch is made: to interrupt, poison or count."""

    rows: int = 6
    parts: int = 1  # how many parts a batch comes in
    seed: int = 0
    before: Callable[[int, int], None] = lambda step, micro: None
    scores: list[float] = field(default_factory=list)  # what `score` is to say, one after another
    better: Better = LOSS
    data: str = "toy"

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"data": self.data}

    def batch(self, step: int, micro: int) -> Rows:
        self.before(step, micro)
        key = generator(self.seed, "toy", step)
        lengths = torch.randint(2, 12, (self.rows,), generator=key)
        ids = torch.randint(0, VOCAB, (self.rows, 12), generator=key)
        lengths, ids = lengths[micro :: self.parts], ids[micro :: self.parts]
        real = torch.arange(int(lengths.max()))[None] < lengths[:, None]
        return Rows(ids[:, : real.shape[1]] * real, real)

    def loss(self, model: nn.Module, batch: Rows) -> Tensor:
        real = batch.real_BT[:, 1:]
        logits = model(batch.ids_BT, batch.real_BT)[:, :-1][real]
        return F.cross_entropy(logits, batch.ids_BT[:, 1:][real], reduction="sum")

    def score(self, model: nn.Module, split: str) -> dict[str, float]:
        if self.scores:
            return {"loss": self.scores.pop(0)}
        batch = self.batch(0, 0)
        return {"loss": float(self.loss(model, batch).detach()) / batch.targets}

    def samples(self, model: nn.Module) -> list[str]:
        return [str(model(torch.tensor([[1, 2, 3]]))[0, -1].argmax().item())]


def hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode() + parameter.detach().double().numpy().tobytes())
    return digest.hexdigest()


def remains(folder: Path) -> dict[str, Any]:
    """Everything of a finished run that must not depend on its interruptions."""
    last = list(checkpoints(folder).values())[-1]
    weights = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in [*folder.glob("*.safetensors"), *last.glob("*.safetensors")]
    }
    state = json.loads((last / "state.json").read_text())["state"]
    return {"weights": weights, "state": state, "log": list(map(without_timing, read_log(folder)))}


def strays(folder: Path) -> list[str]:
    """What a run should not leave behind."""
    return [
        path.name
        for path in [*folder.iterdir(), *folder.parent.iterdir()]
        if path.name[:5] in (".tmp-", ".del-")
    ]


# A run with everything in it that could come apart: dropout, parts, running means, validations.
FULL: dict[str, Any] = {
    "steps": 12, "micro": 2, "ema": 0.9, "save_every": 5, "valid_every": 4, "lr": 1e-2,
}  # fmt: skip


def full_training(**changes: Any) -> Training:
    return Training(**{**FULL, **changes})


def hold(folder: str) -> None:
    """Be a trainer that is at work until it is killed."""
    from clearhead.train import Trainer

    def wait(step: int, micro: int) -> None:
        print("held", flush=True)  # noqa: T201
        os.read(0, 1)

    Trainer(toy_bundle(), Toy(before=wait), Training(steps=1), folder).run()

"""The reference: the same folder opened by `transformers`, where it is installed. Never needed to run."""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..bundle import Bundle
from .sample import SampleBatch


@dataclass(frozen=True)
class Reference:
    model: Any
    version: str
    restored: int | None = None  # the layer before which pooled tokens are restored, which theirs lists, too

    def __str__(self) -> str:
        return f"transformers {self.version}"

    @torch.no_grad()
    def layers(self, sample: SampleBatch) -> dict[str, Tensor]:
        """The reference's hidden states by Clearhead's addresses; the last one is after the last norm."""
        ids = sample.inputs[0]
        more: dict[str, Any] = {}
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            more = {"use_cache": False}
        if len(sample.inputs) > 1:
            more |= {"decoder_input_ids": sample.inputs[1]}
        elif type(self.model).__name__.endswith("ForMultipleChoice"):
            ids = ids[:, None]  # (B, choices, T): each row is a question with one choice
        output = self.model(input_ids=ids, **more, output_hidden_states=True)
        if "encoder_hidden_states" in output:
            sides = {"encoder": output["encoder_hidden_states"], "decoder": output["decoder_hidden_states"]}
        else:
            sides = {"tower": output["hidden_states"]}
        found: dict[str, Tensor] = {}
        for side, states in sides.items():
            layers = list(states[1:])
            if self.restored is not None:
                del layers[self.restored]
            found |= {f"{side}.blocks.{i}.out": x for i, x in enumerate(layers[:-1])}
            # The reference returns the output of the last layer only after the last norm.
            found[f"{side}.out"] = layers[-1]
        return {**found, "answer": _answer(output)}


def find_reference(folder: str | Path, bundle: Bundle) -> Reference | str:
    """The reference model, or one line that says why there is none."""
    if importlib.util.find_spec("transformers") is None:
        return "transformers is not installed: invariances only (pip install transformers)"
    if not Path(folder).is_dir():
        return "not a folder: invariances only"
    import transformers

    named = (bundle.config.get("architectures") or [None])[0]
    kind = getattr(transformers, str(named), None)
    if kind is None:
        return f"transformers has no {named}: invariances only"
    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    model = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    pooling = bundle.spec.head_tower.pooling
    return Reference(model, transformers.__version__, None if pooling is None else pooling.restore)


def _answer(output: Any) -> Tensor:
    if "start_logits" in output:
        return torch.stack([output["start_logits"], output["end_logits"]], dim=-1)
    for name in ("logits", "prediction_logits", "last_hidden_state"):
        if name in output:
            answer: Tensor = output[name]
            return answer
    raise AssertionError(f"the reference answered with {list(output)}")

"""The reference: the same folder opened by `transformers`, where it is installed. Never needed to run."""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..bundle import Bundle, base_of_adapter, is_peft
from ..store import read_adapter_folder, resolve
from .sample import SampleBatch


@dataclass(frozen=True)
class Reference:
    model: Any
    name: str  # with its version
    restored: int | None = None  # the layer before which pooled tokens are restored, which theirs lists, too

    def __str__(self) -> str:
        return self.name

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


def find_reference(folder: str | Path, bundle: Bundle, adapter: str | Path | None = None) -> Reference | str:
    """The reference model, or one line that says why there is none. `folder` may itself be an adapter."""
    for package in ("transformers", *(["peft"] if bundle.tuning else [])):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: invariances only (pip install {package})"
    if bundle.tuning is not None and not is_peft(bundle):
        return f"PEFT has no {type(bundle.tuning.value).__name__} like this one: invariances only"
    base, adapter = Path(folder), None if adapter is None else resolve(adapter)
    if bundle.tuning is not None and adapter is None:
        base, adapter = base_of_adapter(folder), base
    if adapter is not None and "peft_type" not in read_adapter_folder(Path(adapter)).config:
        return "PEFT does not open folders of the library adapters; save this one: invariances only"
    if not base.is_dir():
        return "not a folder: invariances only"
    import transformers

    named = (bundle.config.get("architectures") or [None])[0]
    kind = getattr(transformers, str(named), None)
    if kind is None:
        return f"transformers has no {named}: invariances only"
    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    options: dict[str, Any] = {"local_files_only": True, "dtype": torch.float32}
    if bundle.labels and adapter is not None:
        options["num_labels"] = len(bundle.labels)
    model = kind.from_pretrained(base, **options).eval()
    name = f"transformers {transformers.__version__}"
    if adapter is not None:
        import peft

        model = peft.PeftModel.from_pretrained(model, str(adapter)).eval()
        name = f"PEFT {peft.__version__}"
    pooling = bundle.spec.head_tower.pooling
    return Reference(model, name, None if pooling is None else pooling.restore)


def _answer(output: Any) -> Tensor:
    if "start_logits" in output:
        return torch.stack([output["start_logits"], output["end_logits"]], dim=-1)
    for name in ("logits", "prediction_logits", "last_hidden_state"):
        if name in output:
            answer: Tensor = output[name]
            return answer
    raise AssertionError(f"the reference answered with {list(output)}")

"""PEFT beside ours: an adapter of every method over the tiny reference of every family, in both directions.

What learns is moved by noise: a new adapter adds nothing, which would hide every mistake.
"""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft_exceptions import PARTS
from references import KNOWN, Reference, patient
from safetensors import safe_open
from torch import Tensor
from tunings import move

import clearhead as ch
from clearhead.families import Family, HeadKind
from clearhead.tune import IA3, Lora, Prefix, Prompt, Tuning
from clearhead.tune.targets import block_layers

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
BLOCKS = (".layers.", ".layer.", ".h.", ".block.", ".blocks.", ".albert_layers.")
# Reads of PEFT's own warnings: each means that a tensor of a folder is not used, or one is not in it.
NOT_USED = ("Found missing adapter keys", "unexpected", "inconsistency was discovered")


@dataclass(frozen=True)
class Method:
    """A method of PEFT with settings of its own, on both sides."""

    theirs: Callable[[Any, str | None], Any]  # of a model and its task type
    ours: Callable[[ch.Bundle], Tuning]
    labels: bool = False  # over the head of labels, where a family has no head that PEFT takes


def layers_of(model: Any) -> dict[str, Any]:
    """The linear layers of the blocks, without experts, routers and heads, and what has no place here."""
    found = {
        name: m
        for name, m in model.named_modules()
        if isinstance(m, torch.nn.Linear) or type(m).__name__ == "Conv1D"
    }
    apart = (".experts.", ".router.", ".gate.", "shared_expert_gate")
    only = PARTS.get(model.config.model_type, (".", ""))[0]
    return {
        name: m
        for name, m in found.items()
        if any(part in f".{name}" for part in BLOCKS)
        and only in name
        and not any(part in f"{name}." for part in apart)
    }


def _lora(model: Any, task: str | None) -> Any:
    return peft.LoraConfig(r=3, lora_alpha=5, target_modules="all-linear", task_type=task)


def _dora(model: Any, task: str | None) -> Any:
    names = list(layers_of(model))
    return peft.LoraConfig(
        r=2, target_modules=names, use_dora=True, bias="lora_only", task_type=task, lora_dropout=0.1
    )


def _rslora(model: Any, task: str | None) -> Any:
    names = list(layers_of(model))
    return peft.LoraConfig(
        r=3, target_modules=names, use_rslora=True, bias="all", task_type=task,
        rank_pattern={names[0]: 5, names[-1].rpartition(".")[2]: 2}, alpha_pattern={names[-1]: 3},
    )  # fmt: skip


def _saved(model: Any, task: str | None) -> Any:
    """The head, or the table: where the head is tied to it, both as one."""
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and head.weight is embed.weight
    found = {m: name for name, m in model.named_modules()}
    # Of SEQ_CLS, PEFT adds the classifier by itself.
    modules = None if task == "SEQ_CLS" else [found[embed].rpartition(".")[2], found[head]]
    return peft.LoraConfig(
        r=2, target_modules=list(layers_of(model)), init_lora_weights="gaussian", modules_to_save=modules,
        ensure_weight_tying=tied and modules is not None, task_type=task,
    )  # fmt: skip


def _ia3(model: Any, task: str | None) -> Any:
    return peft.IA3Config(target_modules=list(layers_of(model)), feedforward_modules=[], task_type=task)


def _ia3_inputs(model: Any, task: str | None) -> Any:
    names = list(layers_of(model))
    return peft.IA3Config(target_modules=names, feedforward_modules=names[1::2], task_type=task)


def _ia3_of_inputs(bundle: ch.Bundle) -> Tuning:
    """The inputs of the feed-forward layers, and the outputs of the others."""
    layers = block_layers(bundle.model)
    inside = tuple(name for name in layers if ".ff" in name)
    return IA3(targets=tuple(name for name in layers if ".ff" not in name), feedforward=inside)


METHODS = {
    "lora": Method(_lora, lambda _: Lora(rank=3, alpha=5)),
    "dora": Method(_dora, lambda _: Lora(rank=2, variant="dora", bias="lora_only", dropout=0.1)),
    "rslora": Method(_rslora, lambda _: Lora(
        rank=3, alpha=5, scaling="sqrt-rank", bias="all", rank_pattern=(("*.blocks.0", 2),),
        alpha_pattern=(("*.blocks.0", 3.0),))),
    "saved": Method(_saved, lambda bundle: Lora(
        rank=2, start="gaussian", modules_to_save=("head" if bundle.task == "labels" else "*.embed.table",)),
        labels=True),
    "ia3": Method(_ia3, lambda _: IA3(targets="all-linear", feedforward=())),
    "ia3-inputs": Method(_ia3_inputs, _ia3_of_inputs),
    "prompt": Method(lambda _, task: peft.PromptTuningConfig(num_virtual_tokens=3, task_type=task),
                     lambda _: Prompt(length=3), labels=True),
    "prefix": Method(lambda _, task: peft.PrefixTuningConfig(num_virtual_tokens=3, task_type=task),
                     lambda _: Prefix(length=3), labels=True),
}  # fmt: skip


def our_adapter(folder: Path, name: str, method: str) -> ch.Bundle:
    bundle = ch.load(folder)
    tuning = METHODS[method].ours(bundle)
    if name in PARTS and method != "lora":
        tuning = replace(tuning, targets=PARTS[name][1]) if hasattr(tuning, "targets") else tuning
    tuned = ch.tune(bundle, tuning)
    move(tuned.model, tuned.tuning.trained)
    return tuned


def _uses_labels(family: Family) -> bool:
    return family.mode == "bidirectional"


def head_of(name: str, method: str) -> HeadKind:
    return "labels" if METHODS[method].labels and _uses_labels(KNOWN[name]) else "tokens"


def task_type(name: str, method: str) -> str | None:
    family = KNOWN[name]
    if head_of(name, method) == "labels":
        return "SEQ_CLS"
    return {"causal": "CAUSAL_LM", "encoder-decoder": "SEQ_2_SEQ_LM"}.get(family.mode)


@cache
def base_folder(root: Path, name: str, head: HeadKind) -> Path:
    Reference(KNOWN[name], head, "plain", {}).files(root / f"{name}-{head}")
    return root / f"{name}-{head}"


def their_base(folder: Path) -> Any:
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    model = kind.from_pretrained(folder, local_files_only=True).eval()
    patient(model)
    return model


def with_peft(base: Any, config: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peft.get_peft_model(base, config)


def their_adapter(base: Any, name: str, method: str) -> Any:
    model = with_peft(base, METHODS[method].theirs(base, task_type(name, method)))
    learning = [(key, p) for key, p in model.named_parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, p in learning:
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return model.eval()


def save_theirs(model: Any, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)


def load_theirs(base: Any, folder: Path, unused: str = "") -> Any:
    """What PEFT makes of a folder, of which every tensor must be used and none may be missing.

    `unused` is in the names of tensors that PEFT stores, and that the folder has not.
    """
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(base, folder).eval()
        texts = [str(warning.message) for warning in found]
    assert not [text for text in texts if any(part in text for part in NOT_USED)], texts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        used = peft.get_peft_model_state_dict(model)
    stored = tensors_of(folder)
    missing = sorted(used.keys() ^ stored.keys())
    assert bool(missing) == bool(unused) and all(unused in key and key in used for key in missing), missing
    assert all(torch.equal(used[key], x) for key, x in stored.items())
    return model


def tensors_of(folder: Path) -> dict[str, Tensor]:
    with safe_open(folder / WEIGHTS, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def ids() -> Tensor:
    return torch.randint(5, 90, (2, 12), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def their_output(model: Any, name: str, method: str) -> Tensor:
    two = KNOWN[name].mode == "encoder-decoder"
    found = model(input_ids=ids(), **({"decoder_input_ids": ids()[:, :8]} if two else {}))
    output: Tensor = found["logits"] if "logits" in found else found[0]
    if method == "prompt" and output.ndim == 3 and not two:  # of virtual tokens, too
        output = output[:, -ids().shape[1] :]
    return output


@torch.no_grad()
def our_output(bundle: ch.Bundle) -> Tensor:
    output: Tensor = bundle.model(ids()) if bundle.spec.inputs == 1 else bundle.model(ids(), ids()[:, :8])
    return output


def assert_same(got: Tensor, want: Tensor) -> None:
    assert got.shape == want.shape
    difference = float((got - want).abs().max() / want.abs().max())
    assert difference < 1e-5, f"{difference:.1e} of the largest"


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return config


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (WEIGHTS, CONFIG)}

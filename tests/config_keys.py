"""Config keys: a reference in; its config.json with one key changed or left out; what we make of that file.

A case is good if we open the file with the numbers of the reference, or refuse it in one line. It does not
count if the reference itself cannot be built or run with it.
"""

import json
import shutil
import traceback
import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from reference_runs import Batch, answer_of, in_64_bits, row_of, run_ours, run_theirs
from references import LONGROPE, ROPES, Reference
from tolerance import assert_close
from torch import Tensor

import clearhead as ch
from clearhead.errors import ClearheadError

LARGEST = 4_000_000  # numbers of a model; a default of their class may be a size of a published model
LONGEST = 300  # characters of a line
# Keys about the file, or about what their `forward` returns.
APART = {"architectures", "model_type", "transformers_version", "_name_or_path", "dtype", "return_dict",
         "output_hidden_states", "output_attentions", "label2id"}  # fmt: skip
ACTIVATIONS = ["relu", "gelu", "gelu_new", "silu", "tanh", "quick_gelu", "gelu_fast", "gelu_10", "relu2",
               "mish", "sigmoid", "linear", "leaky_relu", "laplace", "gelu_python", "xielu"]  # fmt: skip
DRAWN = {"hash_seed"}  # without a value for it, Reformer draws another hash for every text
# Strings that a key may hold; others get one that nobody knows.
WORDS = {
    "feed_forward_proj": ["relu", "gated-gelu", "gelu", "gated-silu", "gelu_new", "gated-relu", "silu"],
    "position_embedding_type": ["relative_key", "relative_key_query", "rotary", "alibi"],
    "summary_type": ["last", "first", "mean", "cls_index", "attn"],
    "classifier_pooling": ["cls", "mean", "bos", "late"],
    "attn_type": ["uni", "bi"], "attention_type": ["original_full", "block_sparse"],
    "encoder_attention_type": ["local", "transient-global"],
    "topk_method": ["greedy", "group_limited_greedy", "noaux_tc"],
    "scoring_func": ["softmax", "sigmoid"], "norm_rel_ebd": ["none", "layer_norm"],
    "pos_att_type": ["c2p", "p2c", "p2p", "c2p|p2c"], "problem_type": ["regression"],
    "summary_activation": ["tanh", "relu"], "hidden_act": ACTIVATIONS,
}  # fmt: skip
# Keys of older files and of other families. Where their class does not read one, we must not either.
OLD_KEYS: dict[str, Any] = {
    "rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "rotary_emb_base": 700,
    "rotary_pct": 0.5, "partial_rotary_factor": 0.5, "n_embed": 48, "num_labels": 4, "torch_dtype": "float32",
    "sliding_window_pattern": 2, "layer_types": ["full_attention", "sliding_attention"] * 2,
    "rope_local_base_freq": 300.0, "global_rope_theta": 300.0, "local_rope_theta": 300.0,
    "global_attn_every_n_layers": 2, "pooler_hidden_size": 40, "position_embedding_type": "relative_key",
    "add_cross_attention": True, "is_decoder": True, "num_key_value_heads": 2, "head_dim": None,
    "sliding_window": 3, "clip_qkv": 0.3, "multi_query": True, "attn_config": {"alibi": True}, "n_head_kv": 2,
    "embedding_size": 16, "logit_scale": 0.5, "use_bidirectional_attention": True, "max_length": 9,
    "pruned_heads": {}, "attention_head_size": 4, "layer_norm_eps": 1e-3,
}  # fmt: skip
LEFT_OUT = object()
Found = Literal["same", "refused", "not counted", "other numbers", "traceback", "bad line"]


@dataclass(frozen=True)
class Case:
    reference: Reference
    key: str
    value: Any  # LEFT_OUT: the key is not there
    full: bool  # every key of theirs is written, as their `save_pretrained` does; or those that differ

    def __str__(self) -> str:
        value = "left out" if self.value is LEFT_OUT else repr(self.value)
        return f"{self.reference} {self.key} {value}{' (full)' if self.full else ''}"

    def config_json(self) -> dict[str, Any]:
        reference = self.reference
        config = reference.config().to_dict() if self.full else reference.given()
        config |= {
            "model_type": reference.family.key,
            "architectures": [reference.family.architectures[reference.task]],
        }
        if self.value is LEFT_OUT:
            config.pop(self.key, None)
        else:
            config[self.key] = deepcopy(self.value)
        return dict(json.loads(json.dumps(config)))


def cases(reference: Reference) -> Iterator[Case]:
    """Every key changed, in a file that has nothing but what differs; every key left out of a full file."""
    config = reference.config().to_dict()
    for key, value in config.items():
        if key in APART:
            continue
        if key not in DRAWN:
            yield Case(reference, key, LEFT_OUT, full=True)
        for other in other_values(key, value):
            yield Case(reference, key, other, full=False)
    for key, own in reference.config().attribute_map.items():
        for other in other_values(own, config.get(own)):
            yield Case(reference, key, other, full=False)
    for key, value in OLD_KEYS.items():
        yield Case(reference, key, value, full=False)


def other_values(key: str, value: Any) -> Iterator[Any]:
    """Plausible values of a key other than this one."""
    for other in _others(key, value):
        if other is None and key in DRAWN:
            continue
        if other != value or type(other) is not type(value):
            yield other


def _others(key: str, value: Any) -> Iterator[Any]:
    if key in WORDS:
        yield from WORDS[key]
    if key == "rope_parameters":
        yield from _ropes(value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value, value // 2, None)
    elif isinstance(value, float):
        yield from (value * 1.5, value + 0.25, 0.0, None)
    elif isinstance(value, str) and key not in WORDS:
        yield from (ACTIVATIONS if value in (*ACTIVATIONS, "gelu_pytorch_tanh") else ["other"])
    elif isinstance(value, list):
        yield from (value[::-1], value[:-1], [*value, *value[-1:]])
    elif value is None:
        yield from (4, 8, 0.5, True)


def _ropes(value: dict[str, Any]) -> Iterator[Any]:
    """Every kind of scaling, alone or for the kinds of layers that the config tells apart."""
    kinds = [kind for kind in value if isinstance(value[kind], dict)]
    plain = {"rope_type": "default", "rope_theta": 500.0}
    for rope in (*ROPES.values(), LONGROPE | {"factor": 2.0, "original_max_position_embeddings": 32}, plain,
                 plain | {"partial_rotary_factor": 0.5}, {"rope_type": "proportional", "rope_theta": 500.0},
                 {"rope_type": "default"}, {"rope_theta": 700.0}):  # fmt: skip
        yield rope if not kinds else dict.fromkeys(kinds, rope)
        if kinds:
            yield rope
            for kind in kinds:
                yield value | {kind: rope}


def attempt(case: Case, folder: Path) -> tuple[Found, str]:
    """What came of it, and the words. Numbers that differ are compared again in 64 bits: there, the order of
    a sum does not show, and another formula does."""
    found = _attempt(case, folder, torch.float32)
    if found[0] != "other numbers":
        return found
    with in_64_bits():
        return _attempt(case, folder, torch.float64)


@torch.no_grad()
def _attempt(case: Case, folder: Path, dtype: torch.dtype) -> tuple[Found, str]:
    raw = case.config_json()
    try:
        with warnings.catch_warnings(action="ignore"):  # theirs, about odd values
            batch, wanted = _reference_run(case, raw, folder, dtype)
    except Exception as error:
        return "not counted", f"{type(error).__name__}: {error}"
    if not all(torch.isfinite(want).all() for want in wanted):
        return "not counted", "not finite"
    (folder / "config.json").write_text(json.dumps(raw))
    try:
        ours = ch.load(folder).model
    except ClearheadError as error:
        line = str(error)
        return ("refused", line) if line.isprintable() and len(line) <= LONGEST else ("bad line", line)
    except Exception:
        return "traceback", traceback.format_exc(limit=-3)
    return _compare(ours, batch, wanted)


def _reference_run(
    case: Case, raw: dict[str, Any], folder: Path, dtype: torch.dtype
) -> tuple[Batch, list[Tensor]]:
    """The answers of the reference with this config; its weights are written into the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw))
    config = transformers.AutoConfig.from_pretrained(folder)
    if type(config) is not type(case.reference.config()):  # Mistral with layer_types is Ministral to them
        raise ValueError(f"they read it as another model, {type(config).__name__}")
    kind = getattr(transformers, case.reference.family.architectures[case.reference.task])
    with torch.device("meta"):
        count = sum(p.numel() for p in kind(deepcopy(config)).parameters())
    if count > LARGEST:
        raise ValueError(f"{count:,} numbers are too many for a test")
    theirs = case.reference.model(dtype, config)
    batch = Batch.of(case.reference, config)
    wanted = [answer_of(outputs) for outputs in run_theirs(theirs, batch)]
    theirs.save_pretrained(folder)
    return batch, wanted


def _compare(ours: Any, batch: Batch, wanted: list[Tensor]) -> tuple[Found, str]:
    try:
        answer = run_ours(ours, batch)
        for row, want in enumerate(wanted):
            tolerance = {torch.float32: 1e-5, torch.float64: 1e-10}[want.dtype]
            assert_close(row_of(ours, answer, batch, row, want), want, tolerance)
    except AssertionError as error:
        return "other numbers", " ".join(str(error).split())[:160]
    except ClearheadError as error:  # only the call shows that a kernel cannot do it
        return "refused", str(error)
    except Exception:
        return "traceback", traceback.format_exc(limit=-3)
    return "same", ""

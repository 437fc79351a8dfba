"""Makes tests/golden/transfo_xl.safetensors with the last package that had Transformer-XL. Run by hand, once:

    python -m venv xl && xl/bin/pip install torch==2.6.0 numpy safetensors \
        transformers==4.57.6 tokenizers==0.22.2 huggingface_hub==0.36.0
    xl/bin/python tests/golden/transfo_xl.py

Three small models (the shape of the published one; one table for all words; norms in front), with random
weights. For each: its config and tensors, the ids of a text, and what the model said of it in one call, in
segments with a memory, and as the package itself begins: with a memory of zeros.
"""

import json
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLLMHeadModel

warnings.simplefilter("ignore")
type_as = torch.Tensor.type_as
# The package calls `x.type_as(dtype=...)`, which torch does not know; nothing else is changed.
torch.Tensor.type_as = lambda x, other=None, dtype=None: x.to(dtype) if other is None else type_as(x, other)

SMALL = {"d_model": 12, "n_head": 2, "d_head": 5, "d_inner": 10, "n_layer": 2, "vocab_size": 40}
MODELS = {
    "published": {"cutoffs": [10, 20, 30], "d_embed": 16, "div_val": 2, "mem_len": 6, "clamp_len": 7},
    "one-table": {"cutoffs": [15], "d_embed": 12, "div_val": 1, "mem_len": 8, "clamp_len": -1,
                  "same_length": False, "untie_r": False},
    "pre-norm": {"cutoffs": [10, 30], "d_embed": 8, "div_val": 2, "mem_len": 5, "clamp_len": -1,
                 "pre_lnorm": True, "same_length": False},
}  # fmt: skip


def run(model: TransfoXLLMHeadModel, ids: torch.Tensor, lengths: list[int], *, zeros: bool) -> dict:
    """Segment after segment, each with the memory that the one before it left."""
    nothing = [torch.zeros(0, len(ids), model.config.d_model) for _ in range(model.config.n_layer)]
    memory, said = None if zeros else nothing, []
    for segment in ids.split(lengths, dim=1):
        out = model(segment, mems=memory, output_hidden_states=True, return_dict=True)
        memory = out.mems
        said.append(out)
    scores = torch.cat([out.prediction_scores for out in said], dim=1)
    layers = [torch.cat(layer, dim=1) for layer in zip(*(out.hidden_states for out in said), strict=True)]
    return {"scores": scores} | {f"layer.{i}": x for i, x in enumerate(layers)}


@torch.no_grad()
def main() -> None:
    tensors, configs = {}, {}
    for number, (name, changes) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        config = TransfoXLConfig(**SMALL | changes)
        model = TransfoXLLMHeadModel(config).eval()
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
        configs[name] = json.dumps(config.to_dict())
        tensors |= {f"{name}/weights/{key}": x.clone() for key, x in model.state_dict().items()}
        ids = torch.randint(0, config.vocab_size, (2, 15))
        tensors[f"{name}/ids"] = ids
        runs = {"whole": ([15], False), "segments": ([5, 5, 5], False), "zeros": ([5, 5, 5], True)}
        for how, (lengths, zeros) in runs.items():
            tensors |= {
                f"{name}/{how}/{k}": x.clone() for k, x in run(model, ids, lengths, zeros=zeros).items()
            }
    save_file(tensors, Path(__file__).with_suffix(".safetensors"), configs)


if __name__ == "__main__":
    main()

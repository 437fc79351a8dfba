"""Makes tests/golden/merged_by_mergekit.safetensors with mergekit itself. Run by hand, once:

    python -m venv mk && mk/bin/pip install torch==2.13.0 numpy safetensors && mk/bin/pip install --no-deps \
        mergekit==0.1.5 transformers==5.22.2 peft==0.21.2 && mk/bin/pip install accelerate click pydantic \
        immutables tqdm tokenizers huggingface_hub packaging pyyaml regex requests scipy protobuf \
        sentencepiece
    mk/bin/python tests/golden/merged_by_mergekit.py

Small models with random weights: of two families a base and two that were moved away from it. The configs
are run by `mergekit.merge.run_merge`, as `mergekit-yaml` does; they are in the metadata, with BASE, A and B
for the folders. Inputs are under KIND/BASE/NAME, results under KIND/CONFIG/NAME, all as transformers names
them. DARE draws from torch's global generator: it is run on single tensors, and what it drew is kept, too.
"""

import json
import re
import tempfile
from pathlib import Path

import torch
import yaml
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.merge_methods import merge_tensors
from mergekit.options import MergeOptions
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

LLAMA = LlamaConfig(
    vocab_size=20, hidden_size=12, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=1, tie_word_embeddings=False,
)  # fmt: skip
BERT = BertConfig(
    vocab_size=20, hidden_size=12, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
    max_position_embeddings=12,
)  # fmt: skip
MODELS = {"llama": lambda: LlamaForCausalLM(LLAMA), "bert": lambda: BertForSequenceClassification(BERT)}
CONFIGS = {
    "linear": """
models:
  - model: A
    parameters: {weight: 0.3}
  - model: B
    parameters: {weight: 0.9}
merge_method: linear
dtype: float32
""",
    "sum": """
models:
  - model: A
    parameters: {weight: 1.5}
  - model: B
    parameters: {weight: -0.5}
parameters: {normalize: false}
merge_method: linear
""",
    "slerp": """
slices:
  - sources:
      - {model: A, layer_range: [0, DEPTH]}
      - {model: B, layer_range: [0, DEPTH]}
merge_method: slerp
base_model: A
parameters:
  t:
    - filter: attn
      value: [0, 0.5, 0.3, 0.7, 1]
    - filter: mlp
      value: [1, 0.5, 0.7, 0.3, 0]
    - value: 0.5
dtype: float32
""",
    "slerp-back": """
models:
  - model: A
  - model: B
merge_method: slerp
base_model: B
parameters: {t: 0.2}
""",
    "task": """
models:
  - model: A
    parameters: {weight: 0.8}
  - model: B
    parameters: {weight: -0.4}
merge_method: task_arithmetic
base_model: BASE
parameters: {lambda: 1.5}
""",
    "ties": """
models:
  - model: BASE
  - model: A
    parameters: {density: 0.6, weight: 0.5}
  - model: B
    parameters:
      density: [0.9, 0.3]
      weight:
        - filter: mlp
          value: 0.2
        - value: [1.0, 0.4]
merge_method: ties
base_model: BASE
parameters: {normalize: true, int8_mask: true}
dtype: float32
""",
    "ties-sum": """
models:
  - model: A
    parameters: {weight: 0.7}
  - model: B
    parameters: {weight: 0.7}
merge_method: ties
base_model: BASE
parameters: {density: 0.4, normalize: false, lambda: 0.9}
""",
}
DRAWN: list[torch.Tensor] = []
bernoulli = torch.bernoulli


def moved(model: torch.nn.Module, size: float) -> torch.nn.Module:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * size)
    return model


def note_draws(p: torch.Tensor) -> torch.Tensor:
    DRAWN.append(bernoulli(p))
    return DRAWN[-1]


def dare() -> dict[str, torch.Tensor]:
    """Single tensors, with the masks that were drawn; the first input is the base."""
    inputs = [torch.randn(7, 9) for _ in range(3)]
    found = {f"dare/{name}": x for name, x in zip(("base", "one", "two"), inputs, strict=True)}
    torch.bernoulli = note_draws
    for method in ("dare_linear", "dare_ties"):
        for rescale in (True, False):
            DRAWN.clear()
            settings = {
                "weight": [0.6, 0.9], "density": [0.5, 0.7], "rescale": rescale, "lambda": 0.8,
                "normalize": method == "dare_ties",
            }  # fmt: skip
            result = merge_tensors(inputs, method, parameters=settings, base_index=0)
            key = f"dare/{method}/{'l1' if rescale else 'none'}"
            found |= {key: result, f"{key}/one": DRAWN[0], f"{key}/two": DRAWN[1]}
    torch.bernoulli = bernoulli
    return found


def merge(config: str, depth: int, place: str, out: str) -> dict[str, torch.Tensor]:
    """Run a config as `mergekit-yaml` does; the tensors of the result."""
    for name in ("BASE", "A", "B"):
        config = re.sub(rf"\b{name}\b", f"{place}/{name}", config)
    tree = yaml.safe_load(config.replace("DEPTH", str(depth)))
    options = MergeOptions(copy_tokenizer=False, write_model_card=False)
    run_merge(MergeConfiguration.model_validate(tree), out_path=out, options=options)
    state = {}
    for file in sorted(Path(out).glob("*.safetensors")):
        state |= load_file(file)
    return state


def main() -> None:
    torch.manual_seed(0)
    tensors = dare()
    for kind, build in MODELS.items():
        with tempfile.TemporaryDirectory() as place:
            base = moved(build(), 0.1)
            for name in ("BASE", "A", "B"):
                model = build()
                model.load_state_dict(base.state_dict())
                moved(model, 0.0 if name == "BASE" else 0.05).save_pretrained(f"{place}/{name}")
                state = load_file(f"{place}/{name}/model.safetensors")
                tensors |= {f"{kind}/{name}/{key}": x for key, x in state.items()}
            for name, config in CONFIGS.items():
                state = merge(config, base.config.num_hidden_layers, place, f"{place}/out-{name}")
                tensors |= {f"{kind}/{name}/{key}": x for key, x in state.items()}
    configs = {f"config/{name}": text.lstrip() for name, text in CONFIGS.items()}
    models = {"llama": json.dumps(LLAMA.to_dict()), "bert": json.dumps(BERT.to_dict())}
    tensors = {name: x.contiguous().clone() for name, x in tensors.items()}
    save_file(tensors, Path(__file__).with_suffix(".safetensors"), configs | models)


if __name__ == "__main__":
    main()

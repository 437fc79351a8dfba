"""Makes tests/golden/adapters_of_hub.safetensors with the library adapters itself. Run by hand, once:

    python -m venv ah && ah/bin/pip install torch==2.13.0 transformers==4.57.6 tokenizers==0.22.2 \
        huggingface_hub==0.36.0 adapters==1.3.0
    ah/bin/python tests/golden/adapters_of_hub.py

Small models with random weights, norms included. For each: its config and tensors as `save_pretrained` writes
them, the ids of a text, its logits, and for each adapter config what `save_adapter` writes and the logits
with the adapter, whose tensors are random and far from zero. Tensors are under MODEL/base, MODEL/ids and
MODEL/ADAPTER/tensors, adapter_config.json is in the metadata under MODEL/ADAPTER.
"""

import logging
import tempfile
from pathlib import Path

import adapters
import torch
import transformers as tf
from adapters import BnConfig, DoubleSeqBnConfig, IA3Config, LoRAConfig, ParBnConfig, SeqBnConfig
from safetensors.torch import load_file, save_file

NAME = "a task"
WIDTH, LAYERS, HEADS, WORDS = 8, 2, 2, 20
USUAL = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 12, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "max_position_embeddings": 16, "pad_token_id": 0,
}  # fmt: skip
GPT = {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 16}
T5 = {
    "vocab_size": WORDS, "d_model": WIDTH, "d_kv": 4, "d_ff": 12, "num_layers": LAYERS, "num_heads": HEADS,
    "num_decoder_layers": LAYERS,
}  # fmt: skip
BART = {
    "vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12, "max_position_embeddings": 16, "pad_token_id": 1, "forced_eos_token_id": None,
    "decoder_start_token_id": 2,
}  # fmt: skip
DISTIL = {
    "vocab_size": WORDS, "dim": WIDTH, "hidden_dim": 12, "n_layers": LAYERS, "n_heads": HEADS,
    "max_position_embeddings": 16,
}  # fmt: skip
MODELS = {
    "bert": (tf.BertForMaskedLM, tf.BertConfig(**USUAL)),
    "roberta": (tf.RobertaForMaskedLM, tf.RobertaConfig(**USUAL | {"pad_token_id": 1})),
    "xlm-roberta": (tf.XLMRobertaForMaskedLM, tf.XLMRobertaConfig(**USUAL | {"pad_token_id": 1})),
    "albert": (tf.AlbertForMaskedLM, tf.AlbertConfig(**USUAL, embedding_size=6)),
    "albert-groups": (
        tf.AlbertForMaskedLM,
        tf.AlbertConfig(**USUAL | {"num_hidden_layers": 4}, embedding_size=6, num_hidden_groups=2),
    ),
    "distilbert": (tf.DistilBertForMaskedLM, tf.DistilBertConfig(**DISTIL)),
    "electra": (tf.ElectraForMaskedLM, tf.ElectraConfig(**USUAL, embedding_size=6)),
    "deberta": (
        tf.DebertaForMaskedLM,
        tf.DebertaConfig(**USUAL, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ),
    "deberta-v2": (
        tf.DebertaV2ForMaskedLM,
        tf.DebertaV2Config(**USUAL, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ),
    "modernbert": (
        tf.ModernBertForMaskedLM,
        tf.ModernBertConfig(
            **USUAL,
            reference_compile=False,
            attn_implementation="eager",
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        ),
    ),
    "gpt2": (tf.GPT2LMHeadModel, tf.GPT2Config(**GPT)),
    "gptj": (tf.GPTJForCausalLM, tf.GPTJConfig(**GPT, rotary_dim=4)),
    "llama": (tf.LlamaForCausalLM, tf.LlamaConfig(**USUAL, num_key_value_heads=1)),
    "mistral": (tf.MistralForCausalLM, tf.MistralConfig(**USUAL, num_key_value_heads=1)),
    "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config(**USUAL, num_key_value_heads=1)),
    "qwen3": (tf.Qwen3ForCausalLM, tf.Qwen3Config(**USUAL, num_key_value_heads=1, head_dim=4)),
    "phi": (tf.PhiForCausalLM, tf.PhiConfig(**USUAL)),
    "t5": (tf.T5ForConditionalGeneration, tf.T5Config(**T5)),
    "mt5": (tf.MT5ForConditionalGeneration, tf.MT5Config(**T5)),
    "bart": (tf.BartForConditionalGeneration, tf.BartConfig(**BART)),
    "mbart": (tf.MBartForConditionalGeneration, tf.MBartConfig(**BART)),
    "plbart": (tf.PLBartForConditionalGeneration, tf.PLBartConfig(**BART)),
}
PRE_NORM = ("gpt2", "llama", "t5")
LINEAR = ("bert", "albert", "distilbert", "gpt2", "llama", "t5", "bart", "modernbert")
CONFIGS = {
    "houlsby": DoubleSeqBnConfig(reduction_factor=4),
    "pfeiffer": SeqBnConfig(reduction_factor=4),
    "parallel": ParBnConfig(),
    # Both sub-layers and cross-attention, one factor for each channel, other reductions for some layers.
    "pfeiffer-everywhere": SeqBnConfig(
        mh_adapter=True, cross_adapter=True, scaling="channel", reduction_factor={"1": 2.5, "default": 4},
        non_linearity="gelu_new",
    ),
    # A learned factor, some layers left out (of encoder and decoder as they are counted on), wider within.
    "parallel-everywhere": ParBnConfig(
        mh_adapter=True, cross_adapter=True, scaling="learned", leave_out=[1, 2], non_linearity="gelu",
        reduction_factor=0.8,
    ),
    "houlsby-everywhere": DoubleSeqBnConfig(
        cross_adapter=True, scaling=0.7, reduction_factor=100, dropout=0.1, leave_out=[3]
    ),
    # No norm after it: without norms between the layers the sum is what another config says.
    "no-norm-after": BnConfig(
        mh_adapter=True, output_adapter=True, reduction_factor=4, non_linearity="tanh",
        original_ln_before=True, original_ln_after=False, residual_before_ln=False,
    ),
    "lora": LoRAConfig(r=2, alpha=6, intermediate_lora=True, output_lora=True, dropout=0.1, leave_out=[3]),
    "ia3": IA3Config(output_lora=True),
}  # fmt: skip
FEW = {  # models whose code is that of another in the list, or that have some places alone
    "xlm-roberta": ("houlsby", "pfeiffer", "parallel"),
    "plbart": ("houlsby", "pfeiffer", "parallel"),
    "mt5": ("houlsby", "pfeiffer", "parallel"),
    "mbart": ("houlsby", "pfeiffer", "parallel"),
    "mistral": ("houlsby", "pfeiffer", "parallel"),
    "deberta": ("houlsby", "pfeiffer", "parallel"),
    "deberta-v2": ("houlsby", "pfeiffer", "parallel"),
    "electra": ("houlsby", "pfeiffer", "parallel"),
    "albert-groups": ("houlsby", "parallel-everywhere"),
    "qwen2": ("houlsby", "pfeiffer", "parallel"),
    "qwen3": ("houlsby", "pfeiffer", "parallel"),
    "roberta": ("houlsby", "pfeiffer", "parallel"),
    # The other configs are refused for these.
    "gptj": ("houlsby",),
    "phi": ("houlsby", "pfeiffer"),
    "modernbert": ("houlsby",),
}


def configs_of(name: str) -> list[str]:
    bottlenecks = [key for key in CONFIGS if key not in ("no-norm-after", "lora", "ia3")]
    found = list(FEW.get(name, bottlenecks))
    found += ["no-norm-after"] if name in PRE_NORM else []
    return [*found, "lora", "ia3"] if name in LINEAR else found


def move(parameters: list[torch.nn.Parameter], size: float) -> None:
    for p in parameters:
        p.add_(torch.randn_like(p) * size)


def logits(model: torch.nn.Module, ids: tuple[torch.Tensor, ...]) -> torch.Tensor:
    keys = ("input_ids", "decoder_input_ids")
    return model(**dict(zip(keys, ids, strict=False))).logits


@torch.no_grad()
def run(name: str, number: int) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    build, config = MODELS[name]
    torch.manual_seed(number)
    model = build(config).eval()
    move(list(model.parameters()), 0.3)
    ids = (torch.randint(3, WORDS, (2, 5)),)
    if config.is_encoder_decoder:
        ids = (*ids, torch.randint(3, WORDS, (2, 4)))
    tensors, texts = {f"{name}/ids/{i}": x for i, x in enumerate(ids)}, {}
    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(f"{place}/base")
        state = load_file(f"{place}/base/model.safetensors")
        texts[f"{name}/config"] = Path(f"{place}/base/config.json").read_text()
        tensors |= {f"{name}/base/{key}": x for key, x in state.items()}
        tensors[f"{name}/logits"] = logits(model, ids)
        known = set(model.state_dict())
        adapters.init(model)
        # The library gives layers that have no bias one of random numbers, which changes the base (DeBERTa,
        # ModernBERT) and is not stored anywhere: here it is zero.
        for each in set(model.state_dict()) - known:
            if each.endswith(("in_proj.bias", "Wqkv.bias")):
                model.state_dict()[each].zero_()
        for key in configs_of(name):
            before = {id(p) for p in model.parameters()}
            model.add_adapter(NAME, config=CONFIGS[key])
            move([p for p in model.parameters() if id(p) not in before], 0.4)
            model.set_active_adapters(NAME)
            model.eval()  # what the library adds is in training mode otherwise, with its dropout
            folder = f"{place}/{key}"
            model.save_adapter(folder, NAME, with_head=False, use_safetensors=True)
            texts[f"{name}/{key}"] = Path(f"{folder}/adapter_config.json").read_text()
            own = load_file(f"{folder}/adapter.safetensors")
            tensors |= {f"{name}/{key}/tensors/{each}": x for each, x in own.items()}
            tensors[f"{name}/{key}/logits"] = logits(model, ids)
            model.set_active_adapters(None)
            model.delete_adapter(NAME)
        rest = (logits(model, ids) - tensors[f"{name}/logits"]).abs().max()
        assert rest < 1e-5, f"{name} without an adapter is off by {rest}"
    return tensors, texts


def main() -> None:
    logging.disable(logging.WARNING)
    tensors, texts = {}, {}
    for number, name in enumerate(MODELS):
        found = run(name, number)
        tensors |= found[0]
        texts |= found[1]
    tensors = {name: x.contiguous().clone() for name, x in tensors.items()}
    save_file(tensors, Path(__file__).with_suffix(".safetensors"), texts)


if __name__ == "__main__":
    main()

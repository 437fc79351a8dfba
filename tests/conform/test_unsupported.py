"""Models that no family describes, and unknown variants of those that are: one line each, never a guess."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from references import tiny_sizes

import clearhead as ch
from clearhead.cli.main import main
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES

# Types without a family here. With a name: the family that it is nearest to.
UNSUPPORTED: dict[str, str | None] = {
    "arcee": "llama", "ministral": "mistral", "diffllama": "llama", "phimoe": "mixtral", "olmoe": "olmo",
    "glm4": "glm", "granitemoe": "granite", "deepseek_v32": "deepseek_v3", "gemma4_text": "gemma3_text",
    "megatron-bert": None, "ibert": "bert", "convbert": "bert", "roberta-prelayernorm": "roberta",
    "modernbert-decoder": "modernbert", "mobilebert": None, "squeezebert": "bert", "nystromformer": None,
    "pegasus_x": "pegasus", "bigbird_pegasus": "pegasus", "blenderbot-small": "blenderbot",
    "nllb-moe": None, "gpt_neox_japanese": "gpt_neox", "ctrl": None, "nemotron": None, "xlm": None,
    "flaubert": None, "mpt": None, "prophetnet": None, "xglm": None, "gte": None,
}  # fmt: skip
READ_OTHERWISE = {
    "vit": "images", "clip": "images", "llava": "images", "whisper": "sound", "wav2vec2": "sound",
    "gemma3": "images", "mamba": "recurrent", "mamba2": "recurrent", "jamba": "recurrent",
    "qwen3_next": "recurrent", "recurrent_gemma": "recurrent", "rwkv": "recurrent",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small LLaMA."""
    ch.save(ch.build("llama", **tiny_sizes(FAMILIES["llama"])), tmp_path)
    return tmp_path


def refusal(folder: Path, config: dict[str, Any]) -> str:
    """The line that a config.json is refused with."""
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ClearheadError) as found:
        ch.load(folder)
    line = str(found.value)
    assert line.isprintable() and len(line) < 300 and " ... " not in line, line
    return line


def changed(folder: Path, **changes: Any) -> dict[str, Any]:
    return {**json.loads((folder / "config.json").read_text()), **changes}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_type_names_the_nearest_family_and_what_differs(name: str, folder: Path) -> None:
    line = refusal(folder, transformers.AutoConfig.for_model(name).to_dict())
    assert line.startswith(f"model_type '{name}' is not supported; ")
    assert line.endswith("'clearhead families' lists what is supported, CONTRIBUTING.md how to add a family")
    if UNSUPPORTED[name] is not None:
        assert f"nearest: {family_title(UNSUPPORTED[name])} ('{UNSUPPORTED[name]}'), which" in line


def family_title(key: str | None) -> str:
    return next(family.title for family in FAMILIES.values() if family.key == key)


@pytest.mark.parametrize("name", READ_OTHERWISE)
def test_models_of_other_kinds_are_told_as_such(name: str, folder: Path) -> None:
    line = refusal(folder, transformers.AutoConfig.for_model(name).to_dict())
    assert line.startswith(f"model_type '{name}' is not supported: ") and READ_OTHERWISE[name] in line


def test_a_slip_in_the_type_names_the_family(folder: Path) -> None:
    llama = changed(folder)
    line = refusal(folder, llama | {"model_type": "lama"})
    assert "nearest: LLaMA ('llama'), which has the same keys" in line
    opt = transformers.AutoConfig.for_model("opt").to_dict() | {"model_type": "opt2"}
    assert "nearest: OPT ('opt'), which has the same keys" in refusal(folder, opt)
    striped = {"model_type": "zebra", "stripes": 7, "architectures": ["LlamaZebraForCausalLM"]}
    line = refusal(folder, llama | striped)
    assert "'zebra' is not supported; nearest: LLaMA ('llama'), which does not know stripes." in line
    hostile = {"model_type": "\x1b[31m\u202e" * 99, "\n\x1b[2J" * 50: 1}
    assert refusal(folder, llama | hostile).startswith("model_type ")


REMOTE = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "modeling_x.XForCausalLM"}


def test_code_of_a_repository_is_never_run(folder: Path) -> None:
    known = changed(folder)
    unknown_type = refusal(folder, known | {"model_type": "x", "auto_map": REMOTE})
    assert (
        "'x' is not supported and needs code from its repository, which Clearhead never runs;" in unknown_type
    )
    assert "nearest: LLaMA" in unknown_type
    own_class = refusal(folder, known | {"auto_map": REMOTE, "architectures": ["XForCausalLM"]})
    assert "'XForCausalLM'" in own_class and "which Clearhead never runs" in own_class
    # Many uploads have both: code of their own, and a class that is supported by now.
    (folder / "config.json").write_text(json.dumps(known | {"auto_map": REMOTE}))
    assert ch.load(folder).family.name == "llama"


def test_the_published_config_of_nomic_bert_opens_or_is_refused(tmp_path: Path) -> None:
    """Its keys are those of the code it came with, and the reference goes by its defaults."""
    published = {
        "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "activation_function": "swiglu",
        "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
        "causal": False, "layer_norm_epsilon": 1e-12, "mlp_fc1_bias": False, "n_embd": 768, "n_head": 12,
        "n_inner": 3072, "n_layer": 12, "n_positions": 8192, "prenorm": False, "qkv_proj_bias": False,
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None, "type_vocab_size": 2, "use_rms_norm": False, "vocab_size": 30528,
    }  # fmt: skip
    family = FAMILIES["nomic_bert"]
    assert family.spec(family.config(published), "hidden").tower.depth == 12
    small = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    ch.save(ch.build("nomic_bert", **small), tmp_path)
    for key, value in {
        "rotary_emb_base": 10000,
        "n_head": 8,
        "prenorm": True,
        "moe_every_n_layers": 2,
    }.items():
        assert f"{key} is {value}; only" in refusal(tmp_path, published | {key: value})


def test_published_configs_with_other_names_of_keys() -> None:
    """BLOOM's files have neither `hidden_size` nor `n_head`; Pythia's have `rotary_emb_base`."""
    bloom = {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16}
    family = FAMILIES["bloom"]
    tower = family.spec(family.config(bloom), "tokens").tower
    assert (tower.width, tower.depth, tower.pattern[0].attention.heads) == (1024, 24, 16)
    family = FAMILIES["gpt_neox"]
    pythia = family.config({"rotary_emb_base": 500, "rotary_pct": 0.5})
    positions = family.spec(pythia, "tokens").tower.positions
    assert (positions.theta, positions.fraction) == (500.0, 0.5)


ROPE = {"rope_type": "spiral", "rope_theta": 1e4}
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "rope type": ({"rope_parameters": ROPE}, "unknown rope_type 'spiral'"),
    "old rope type": ({"rope_scaling": {"type": "spiral", "factor": 2.0}}, "unknown rope_type 'spiral'"),
    "rope of layers": ({"rope_parameters": {"full_attention": ROPE}}, "has one object for all layers"),
    "rope as a word": ({"rope_scaling": "linear"}, "rope_parameters is 'linear', expected an object"),
    "activation": ({"hidden_act": "gulu"}, "unknown activation 'gulu'"),
    "head": (
        {"architectures": ["LlamaForRewardModel"]},
        "architectures names 'LlamaForRewardModel', a class",
    ),
    "other head": ({"architectures": ["LlamaForDocumentQA"]}, "LLaMA has LlamaForCausalLM"),
    "no class": ({"architectures": ["Llama"]}, "architectures names 'Llama'"),
    "fp8": ({"quantization_config": {"quant_method": "fp8"}}, "quantized as 'fp8' (quantization_config)"),
    "gptq": (
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        "load a version of it in bfloat16",
    ),
    "mxfp4": ({"quantization_config": {"quant_method": "mxfp4"}}, "precision='int8' or 'int4'"),
    "bits": ({"quantization_config": {"bits": 4}}, "quantized as quantization_config {'bits': 4}"),
}
OF_FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "layer type": ("gemma2", {"layer_types": ["mamba"] * 4}, "layer_types has 'mamba'"),
    "layer type without a window": ("qwen2", {"layer_types": ["linear_attention"] * 4}, "'linear_attention'"),
    "too few layer types": ("qwen3", {"layer_types": ["full_attention"]}, "has 1 entries for 4 layers"),
    "rope of one kind": ("gemma3", {"rope_parameters": {"full_attention": ROPE}}, "rope_type 'spiral'"),
    "flat rope": ("olmo3", {"rope_parameters": ROPE}, "expected an object for each of full_attention, s"),
    "top-k method": ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'"),
    "scoring function": ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
    "scoring function of v3": ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_an_unknown_variant_is_refused(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, words = VARIANTS[name]
    line = refusal(folder, changed(folder, **changes))
    assert words in line
    with pytest.raises(SystemExit) as left:
        main(["inspect", str(folder)])
    assert left.value.code == 2 and line in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", OF_FAMILIES)
def test_an_unknown_variant_of_a_family_is_refused(name: str, tmp_path: Path) -> None:
    family, changes, words = OF_FAMILIES[name]
    ch.save(ch.build(family, **tiny_sizes(FAMILIES[family])), tmp_path)
    assert words in refusal(tmp_path, changed(tmp_path, **changes))

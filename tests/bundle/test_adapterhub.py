"""Folders of the library adapters, as it wrote and computed them (tests/golden/adapters_of_hub.py)."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from adapterhub_folders import (
    CASES,
    MODELS,
    adapter_folder,
    base_folder,
    computed,
    golden,
    logits_of,
    tensors_of,
)
from hostile import TEXTS, VALUES

import clearhead as ch
from clearhead.cli.main import main
from clearhead.errors import ClearheadError, LoadError
from clearhead.tune import IA3, Bottleneck, Lora
from clearhead.tune.adapterhub.fields import BOTTLENECK_ABSENT, BOTTLENECK_DEFAULTS, BOTTLENECK_UNUSED
from clearhead.tune.adapterhub.linear import LINEAR
from clearhead.tune.adapterhub.places import HUB_PLACES

EXACT = 1e-5  # of the largest logit, in float32: those of mT5 here are in the tens
NAME = json.loads(golden().texts["bert/houlsby"])["name"]
FIELDS = json.loads(golden().texts["bert/houlsby"])["config"]
# The families whose code is one of its own, each with another place or another norm.
UNLIKE = ("bert", "albert", "distilbert", "gpt2", "llama", "t5", "bart", "mbart")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ch.Bundle]:
    place = tmp_path_factory.mktemp("bases")
    return {name: ch.load(base_folder(name, place / name)) for name in MODELS}


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    apart = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0))
    assert apart < EXACT, f"off by {apart:.1e}"


def test_every_place_is_met_and_every_adapter_changes_its_model() -> None:
    kinds = {json.loads(golden().texts[f"{name}/config"])["model_type"] for name in MODELS}
    assert kinds == set(HUB_PLACES)
    assert {model for model, _ in CASES} == set(MODELS)
    for name in UNLIKE:
        assert {"houlsby", "pfeiffer", "parallel"} <= {kind for model, kind in CASES if model == name}
    for model, kind in CASES:
        assert (logits_of(model, kind) - logits_of(model)).abs().max() > 0.1


@pytest.mark.parametrize("model", MODELS)
def test_the_bases_are_those_of_the_library(model: str, bases: dict[str, ch.Bundle]) -> None:
    assert_same(computed(bases[model], model), logits_of(model))


@pytest.mark.parametrize(("model", "kind"), CASES)
def test_logits_are_those_of_the_library(
    model: str, kind: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    tuned = ch.load(bases[model], adapter=adapter_folder(model, kind, tmp_path))
    assert_same(computed(tuned, model), logits_of(model, kind))
    assert isinstance(tuned.tuning.value, {"lora": Lora, "ia3": IA3}.get(kind, Bottleneck))
    stored = sum(x.numel() for x in tensors_of(model, kind).values())
    assert tuned.tuning.trainable == stored  # all that is in the file, and nothing else
    assert_same(computed(bases[model], model), logits_of(model))  # the base is what it was


@pytest.mark.parametrize(
    ("model", "kind"), [(name, "parallel" if name == "mbart" else "pfeiffer-everywhere") for name in UNLIKE]
)
def test_what_is_saved_is_ours_and_loads_to_the_same_bits(model: str, kind: str, tmp_path: Path) -> None:
    base = base_folder(model, tmp_path / "base")
    tuned = ch.load(base, adapter=adapter_folder(model, kind, tmp_path / "theirs"))
    ch.save(tuned, tmp_path / "ours")
    config = json.loads((tmp_path / "ours" / "adapter_config.json").read_text())
    assert config["clearhead"] == 1 and not {"config", "hidden_size", "name", "version"} & set(config)
    info = json.loads((tmp_path / "ours" / "clearhead.json").read_text())
    assert info["tuning"]["kind"] == "Bottleneck" and info["base"]["fingerprint"]
    for again in (ch.load(tmp_path / "ours"), ch.load(base, adapter=tmp_path / "ours")):
        assert torch.equal(computed(again, model), computed(tuned, model))
        assert again.tuning.value == tuned.tuning.value
    assert not (tmp_path / "ours" / "adapter.safetensors").exists()


@pytest.mark.parametrize("kind", ["lora", "ia3"])
@pytest.mark.parametrize("model", ["bert", "gpt2", "t5", "modernbert"])
def test_lora_and_ia3_are_saved_for_peft_and_merged(model: str, kind: str, tmp_path: Path) -> None:
    base = base_folder(model, tmp_path / "base")
    tuned = ch.load(base, adapter=adapter_folder(model, kind, tmp_path / "theirs"))
    ch.save(tuned, tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "adapter_config.json").read_text())
    assert config["peft_type"] == kind.upper() and "hidden_size" not in config
    again = ch.load(base, adapter=tmp_path / "saved")
    assert_same(computed(again, model), computed(tuned, model))
    assert_same(computed(tuned.merged(), model), logits_of(model, kind))


@pytest.mark.parametrize(
    ("model", "before", "after"),
    [
        ("bert", "bert.", ""),  # of BertModel
        ("roberta", "roberta.", ""),
        ("gpt2", "transformer.", ""),
        ("llama", "model.", ""),
        ("llama", "model.", "transformer."),  # of LlamaForQuestionAnswering
        ("bart", "model.", ""),
        ("t5", "", "transformer."),  # of T5AdapterModel
    ],
)
def test_the_class_that_saved_it_does_not_matter(
    model: str, before: str, after: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    stored = tensors_of(model, "houlsby")
    assert all(name.startswith(before) for name in stored)
    renamed = {after + name.removeprefix(before): x for name, x in stored.items()}
    tuned = ch.load(bases[model], adapter=adapter_folder(model, "houlsby", tmp_path, tensors=renamed))
    assert_same(computed(tuned, model), logits_of(model, "houlsby"))


def test_the_base_is_found_by_the_name_in_the_folder(tmp_path: Path) -> None:
    base = base_folder("bert", tmp_path / "base")
    folder = adapter_folder("bert", "houlsby", tmp_path / "adapter", config={"model_name": str(base)})
    assert_same(computed(ch.load(folder), "bert"), logits_of("bert", "houlsby"))


def test_a_head_beside_it_is_left_and_said(
    bases: dict[str, ch.Bundle], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = adapter_folder("bert", "houlsby", tmp_path)
    with caplog.at_level(logging.WARNING, "clearhead.bundle"):
        ch.load(bases["bert"], adapter=folder)
        assert not caplog.messages
        (folder / "head_config.json").write_text("{}")
        ch.load(bases["bert"], adapter=folder)
    assert len(caplog.messages) == 1 and "head_config.json" in caplog.messages[0]


def refused(base: ch.Bundle, folder: Path) -> str:
    with pytest.raises(LoadError) as error:
        ch.load(base, adapter=folder)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("model", "fields", "part"),
    [
        # What a Bottleneck is not: parts that are not there, and sums of another kind.
        ("bert", {"ln_before": True}, "ln_before is True"),
        ("bert", {"ln_after": True}, "ln_after is True"),
        ("bert", {"use_gating": True}, "use_gating is True"),
        ("bert", {"phm_layer": True}, "phm_layer is True"),
        ("bert", {"inv_adapter": "nice"}, "inv_adapter is 'nice'"),
        ("bert", {"stochastic_depth": 0.1}, "stochastic_depth is 0.1"),
        ("bert", {"original_ln_after": False}, "original_ln_after is False"),
        ("bert", {"original_ln_after": False, "is_parallel": True}, "original_ln_after is False"),
        ("bert", {"residual_before_ln": "post_add"}, "residual_before_ln is 'post_add'"),
        ("bert", {"original_ln_before": True, "residual_before_ln": False}, "residual_before_ln is False"),
        ("bert", {"original_ln_before": True, "residual_before_ln": "post_add"}, "residual_before_ln is"),
        (
            "bert",
            {"original_ln_before": True, "original_ln_after": False, "residual_before_ln": False},
            "original_ln_after is False",
        ),
        ("gpt2", {"original_ln_before": True, "original_ln_after": False}, "original_ln_after is False"),
        ("gpt2", {"original_ln_before": True, "residual_before_ln": False}, "residual_before_ln is False"),
        ("gptj", {"original_ln_before": True}, "original_ln_before is True"),
        ("gptj", {"is_parallel": True}, "is_parallel is True"),
        ("modernbert", {"original_ln_before": True}, "original_ln_before is True"),
        ("modernbert", {"is_parallel": True}, "is_parallel is True"),
        ("phi", {"original_ln_before": True}, "original_ln_before is True"),
        # Other methods of the library.
        ("bert", {"architecture": "lora"}, "not known here"),  # the fields are those of another method
        ("bert", {"architecture": "mtl_lora"}, "MTL-LoRA"),
        ("bert", {"architecture": "prefix_tuning"}, "prefix tuning"),
        ("bert", {"architecture": "prompt_tuning"}, "prompt tuning"),
        ("bert", {"architecture": "union"}, "several methods"),
        ("bert", {"architecture": "reft"}, "ReFT"),
        ("bert", {"architecture": "x\x1b[31m"}, "bottleneck"),
        # Damage.
        ("bert", {"mh_adapter": 1}, "mh_adapter is 1; expected true or false"),
        ("bert", {"mh_adapter": "absent"}, "no mh_adapter"),
        ("bert", {"mh_adapter": False, "output_adapter": False}, "no layer"),
        ("bert", {"mh_adapter": False}, "attention.output"),
        ("bert", {"leave_out": [0, 1]}, "no layer"),
        ("bert", {"leave_out": [1]}, "layer.1"),
        ("bert", {"leave_out": None}, "leave_out is None"),
        ("bert", {"leave_out": [True]}, "leave_out"),
        ("bert", {"reduction_factor": 2}, "by hidden_size and reduction_factor"),
        ("bert", {"reduction_factor": 0}, "reduction_factor is 0"),
        ("bert", {"reduction_factor": 1e-29}, "by hidden_size and reduction_factor"),
        ("bert", {"reduction_factor": {"0": 4}}, "layer 1"),
        ("bert", {"reduction_factor": {"default": "4"}}, "reduction_factor"),
        ("bert", {"non_linearity": "swich"}, "did you mean 'swish'"),
        ("bert", {"non_linearity": None}, "non_linearity is None"),
        ("bert", {"scaling": "much"}, "scaling is 'much'"),
        ("bert", {"scaling": "learned"}, "scaling"),  # and no such tensor
        ("bert", {"dropout": 2}, "dropout is 2"),
        ("bert", {"residual_before_ln": 1}, "residual_before_ln is 1"),
        ("bert", {"leave_outs": []}, "did you mean 'leave_out'"),
    ],
)
def test_configs_that_are_not_read_name_their_field(
    model: str, fields: dict[str, Any], part: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    message = refused(bases[model], adapter_folder(model, "houlsby", tmp_path, fields=fields))
    assert part in message, message


@pytest.mark.parametrize(
    ("model", "kind", "fields", "part"),
    [
        ("bert", "lora", {"use_gating": True}, "use_gating is True"),
        ("bert", "lora", {"use_dora": True}, "use_dora is True"),
        ("bert", "lora", {"vera_d": 0.1}, "vera_d is 0.1"),
        ("bert", "lora", {"dtype": "float16"}, "dtype is 'float16'"),
        (
            "bert",
            "lora",
            {"r": 3},
            "lora_A has the shape (2, 8); by r and attn_matrices of the config it has 3 rows",
        ),
        ("bert", "lora", {"r": True}, "r is True"),
        ("bert", "lora", {"r": 2**40}, "r is"),
        ("bert", "lora", {"alpha": -1}, "alpha is -1"),
        ("bert", "lora", {"composition_mode": "scale"}, "r is 2; with composition_mode 'scale' it is 1"),
        ("bert", "lora", {"composition_mode": "mix"}, "composition_mode is 'mix'"),
        ("bert", "lora", {"attn_matrices": ["x"]}, "attn_matrices is ['x']"),
        ("bert", "lora", {"leave_out": [1]}, "leave_out of its config names 1"),
        ("bert", "lora", {"ranks": 1}, "not known here"),
        ("bert", "ia3", {"composition_mode": "add"}, "lacks"),
        ("gpt2", "lora", {"attn_matrices": ["q", "k", "v"]}, "attn_matrices names q, k and v"),
        ("gpt2", "lora", {"attn_matrices": ["q"]}, "has 2 rows"),
        ("gpt2", "lora", {"attn_matrices": []}, "has 0 rows"),
        ("gpt2", "ia3", {"attn_matrices": ["q", "k", "v"]}, "lora_B has 16 rows, for 3"),
        ("gpt2", "ia3", {"attn_matrices": []}, "for 0"),
    ],
)
def test_lora_that_is_not_read_names_its_field(
    model: str, kind: str, fields: dict[str, Any], part: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    message = refused(bases[model], adapter_folder(model, kind, tmp_path, fields=fields))
    assert part in message, message


def test_before_1_1_the_scale_of_lora_was_one(bases: dict[str, ch.Bundle], tmp_path: Path) -> None:
    old = adapter_folder("bert", "lora", tmp_path / "old", config={"version": "adapters.1.0.1"})
    assert ch.load(bases["bert"], adapter=old).tuning.value.alpha == 2.0
    new = adapter_folder("bert", "lora", tmp_path / "new", config={"version": "adapters.1.10.0"})
    assert ch.load(bases["bert"], adapter=new).tuning.value.alpha == 6.0


def test_every_field_of_the_library_is_known() -> None:
    lora = json.loads(golden().texts["bert/lora"])["config"]
    assert set(lora) == {*LINEAR.defaults, *LINEAR.absent, *LINEAR.unused}
    assert set(LINEAR.defaults) == set(LINEAR.types) and set(BOTTLENECK_DEFAULTS) <= set(FIELDS)
    assert set(FIELDS) <= {*BOTTLENECK_DEFAULTS, *BOTTLENECK_ABSENT, *BOTTLENECK_UNUSED}
    assert set(FIELDS) >= {*BOTTLENECK_DEFAULTS, *BOTTLENECK_ABSENT, *BOTTLENECK_UNUSED} - {
        "architecture",
        "invertible_adapter",
    }


@pytest.mark.parametrize("name", sorted(BOTTLENECK_UNUSED))
def test_fields_without_an_effect_have_none(name: str, bases: dict[str, ch.Bundle], tmp_path: Path) -> None:
    folder = adapter_folder("bert", "houlsby", tmp_path, fields={name: "anything"})
    assert_same(computed(ch.load(bases["bert"], adapter=folder), "bert"), logits_of("bert", "houlsby"))


def test_missing_fields_are_those_of_the_class(bases: dict[str, ch.Bundle], tmp_path: Path) -> None:
    """The defaults of BnConfig are those of the Houlsby config, but for what it requires."""
    needed = ("mh_adapter", "output_adapter", "reduction_factor", "non_linearity")
    fields = {name: "absent" for name in FIELDS if name not in needed}
    folder = adapter_folder("bert", "houlsby", tmp_path, fields=fields)
    assert_same(computed(ch.load(bases["bert"], adapter=folder), "bert"), logits_of("bert", "houlsby"))


def test_folders_without_a_version_call_activations_by_their_old_names(
    bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    folder = adapter_folder("bert", "houlsby", tmp_path / "one", fields={"non_linearity": "gelu"})
    assert ch.load(bases["bert"], adapter=folder).tuning.value.act == "gelu"
    stored = json.loads((folder / "adapter_config.json").read_text())
    del stored["version"]
    (folder / "adapter_config.json").write_text(json.dumps(stored))
    assert ch.load(bases["bert"], adapter=folder).tuning.value.act == "gelu_tanh"


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (
            {"model_type": "roberta"},
            "model_type in adapter_config.json is 'roberta', and the base has 'bert'",
        ),
        ({"model_type": None}, "model_type"),
        ({"hidden_size": 16}, "hidden_size in adapter_config.json is 16, and the base has 8"),
        ({"hidden_size": 8.0}, "hidden_size"),
        ({"hidden_size": None}, "hidden_size"),
        ({"name": "another"}, "lacks"),
        ({"name": None}, "name is None"),
        ({"name": ""}, "name is ''"),
        ({"name": "a.b"}, "without dots"),
        ({"config": "houlsby"}, "config is 'houlsby'"),
        ({"config": None}, "config is None"),
        ({"config": {}}, "no mh_adapter"),
    ],
)
def test_other_bases_and_damaged_files_are_one_line(
    config: dict[str, Any], part: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    message = refused(bases["bert"], adapter_folder("bert", "houlsby", tmp_path, config=config))
    assert part in message, message


def test_families_that_the_library_lacks_are_refused(tmp_path: Path) -> None:
    """Also where the base says the same: no place in it is known."""
    base = base_folder("roberta", tmp_path / "base")
    kind = {"model_type": "camembert", "architectures": ["CamembertForMaskedLM"]}
    config = json.loads((base / "config.json").read_text()) | kind
    (base / "config.json").write_text(json.dumps(config))
    folder = adapter_folder("roberta", "houlsby", tmp_path / "adapter", config={"model_type": "camembert"})
    assert "model_type is 'camembert'" in refused(ch.load(base), folder)


@pytest.mark.parametrize("kind", ["lora", "ia3"])
@pytest.mark.parametrize("model", ["bert", "gpt2", "t5", "modernbert"])
def test_every_tensor_of_lora_is_accounted_for(
    model: str, kind: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    stored = tensors_of(model, kind)
    for number, name in enumerate(stored):
        without = {key: x for key, x in stored.items() if key != name}
        refused(bases[model], adapter_folder(model, kind, tmp_path / f"{number}", tensors=without))
        for cut in (stored[name][:-1], stored[name][..., :-1], stored[name].flatten(), stored[name][None]):
            narrow = stored | {name: cut.contiguous()}
            refused(bases[model], adapter_folder(model, kind, tmp_path / f"{number}", tensors=narrow))
    for more in ("x", next(iter(stored)).replace(NAME, "other"), next(iter(stored)) + ".more"):
        extra = {**stored, more: torch.ones(1)}
        refused(bases[model], adapter_folder(model, kind, tmp_path / "more", tensors=extra))
    refused(bases[model], adapter_folder(model, kind, tmp_path / "no", tensors={}))


@pytest.mark.parametrize("model", UNLIKE)
def test_every_tensor_is_accounted_for(model: str, bases: dict[str, ch.Bundle], tmp_path: Path) -> None:
    stored = tensors_of(model, "houlsby")
    for number, name in enumerate(stored):
        without = {key: x for key, x in stored.items() if key != name}
        message = refused(
            bases[model], adapter_folder(model, "houlsby", tmp_path / f"{number}", tensors=without)
        )
        assert "lacks" in message
        narrow = stored | {name: stored[name][..., :-1].contiguous()}
        assert "shape" in refused(
            bases[model], adapter_folder(model, "houlsby", tmp_path / f"{number}n", tensors=narrow)
        )
    for more in ("x", "bert.pooler.dense.weight", next(iter(stored)).replace(NAME, "other"), "adapter_down"):
        message = refused(
            bases[model],
            adapter_folder(model, "houlsby", tmp_path / "more", tensors={**stored, more: torch.ones(1)}),
        )
        assert "which it should not" in message
    assert "lacks" in refused(bases[model], adapter_folder(model, "houlsby", tmp_path / "no", tensors={}))


def test_a_tensor_that_is_there_with_and_without_prefix_is_refused(
    bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    stored = tensors_of("bert", "houlsby")
    name = next(iter(stored))
    twice = stored | {name.removeprefix("bert."): stored[name].clone()}
    assert "twice" in refused(bases["bert"], adapter_folder("bert", "houlsby", tmp_path, tensors=twice))


@pytest.mark.parametrize("name", [*TEXTS, "{i}", "{", "adapters", ".adapters.", "*", "[a]", "a task"])
def test_any_name_is_read_or_one_line(name: str, bases: dict[str, ch.Bundle], tmp_path: Path) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return  # no file can have it
    stored = {key.replace(f".{NAME}.", f".{name}."): x for key, x in tensors_of("bert", "houlsby").items()}
    folder = adapter_folder("bert", "houlsby", tmp_path, tensors=stored, config={"name": name})
    if name and "." not in name:
        assert_same(computed(ch.load(bases["bert"], adapter=folder), "bert"), logits_of("bert", "houlsby"))
    else:
        refused(bases["bert"], folder)


@pytest.mark.parametrize("key", ["config", "hidden_size", "model_type", "name", "version", "model_name"])
def test_any_value_of_a_key_is_read_or_one_line(
    key: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    for number, value in enumerate([*VALUES, *TEXTS]):
        folder = adapter_folder("bert", "houlsby", tmp_path / str(number), config={key: value})
        read_or_refused(bases["bert"], folder)


@pytest.mark.parametrize("field", sorted({*BOTTLENECK_DEFAULTS, *BOTTLENECK_ABSENT}))
def test_any_value_of_a_field_is_read_or_one_line(
    field: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    for number, value in enumerate([*VALUES, *TEXTS]):
        folder = adapter_folder("bert", "houlsby", tmp_path / str(number), fields={field: value})
        read_or_refused(bases["bert"], folder)


@pytest.mark.parametrize("field", sorted({*LINEAR.defaults, *LINEAR.absent}))
@pytest.mark.parametrize("kind", ["lora", "ia3"])
def test_any_value_of_a_field_of_lora_is_read_or_one_line(
    field: str, kind: str, bases: dict[str, ch.Bundle], tmp_path: Path
) -> None:
    for number, value in enumerate([*VALUES, *TEXTS]):
        folder = adapter_folder("bert", kind, tmp_path / str(number), fields={field: value})
        read_or_refused(bases["bert"], folder)


def read_or_refused(base: ch.Bundle, folder: Path) -> None:
    try:
        tuned = ch.load(base, adapter=folder)
    except ClearheadError as error:
        assert "\n" not in str(error) and str(error).isprintable()
    else:
        assert computed(tuned, "bert").shape == logits_of("bert").shape


def test_a_pickle_is_refused(bases: dict[str, ch.Bundle], tmp_path: Path) -> None:
    folder = adapter_folder("bert", "houlsby", tmp_path)
    (folder / "adapter.safetensors").rename(folder / "pytorch_adapter.bin")
    assert "use_safetensors=True" in refused(bases["bert"], folder)


def test_the_command_line_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = base_folder("bert", tmp_path / "base")
    folder = adapter_folder("bert", "houlsby", tmp_path / "adapter")
    assert run("inspect", base, "--adapter", folder) == 0
    assert "Bottleneck" in capsys.readouterr().out
    adapter_folder("bert", "houlsby", folder, fields={"use_gating": True})
    assert run("inspect", base, "--adapter", folder) == 2
    error = capsys.readouterr().err
    assert "use_gating" in error and "Traceback" not in error


@pytest.mark.parametrize("kind", ["houlsby", "lora"])
def test_a_certificate_has_no_reference_for_them(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = base_folder("bert", tmp_path / "base")
    assert run("certify", base, "--adapter", adapter_folder("bert", kind, tmp_path / "adapter")) == 0
    assert "invariances only" in capsys.readouterr().out


def run(*words: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code

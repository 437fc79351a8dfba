"""Swapping a choice of a loaded model: words become specs, weights stay, files remember what was changed."""

import json
from pathlib import Path

import pytest
import torch
from checkpoints import bert, gpt2
from hypothesis import given
from hypothesis import strategies as st
from references import TINY
from zoo import CHOICES, pair, single

import clearhead as ch
from clearhead import nn as cn
from clearhead.bundle.edits import LONGEST_VALUE, apply_edits, edits_as_text, parse
from clearhead.cli.main import main
from clearhead.errors import ClearheadError, LoadError, SpecError
from clearhead.families import FAMILIES
from clearhead.nn import kernels

KERNELS = {
    "Window": "Window(2)",
    "Linear": "Linear",
    "Performer": "Performer(features=8)",
    "Linformer": "Linformer(rank=4, length=16)",
    "Nystrom": "Nystrom(3)",
    "Summary": "Summary(block=2)",
    "Tiled": "Tiled(tile=3)",
    "Softmax": "Softmax(sink=True)",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-2.5", -2.5), ("None", None), ("True", True), ("(255, 0)", (255, 0)), ("[1, 2]", (1, 2)),
        ("post", "post"), ("'post'", "post"), ("", ""), ("Linear", kernels.Linear()),
        ("Window(256)", kernels.Window(left=256)), ("Window(left=256)", kernels.Window(left=256)),
        ("Window(3, 1, cap=5.0)", kernels.Window(left=3, right=1, cap=5.0)),
        ("Rope(theta=1e6, stretch=LinearStretch(factor=2.0))",
         cn.Rope(theta=1e6, stretch=cn.LinearStretch(factor=2.0))),
    ],
)  # fmt: skip
def test_values_as_people_write_them(text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Windw(2)", "unknown spec kind 'Windw'; did you mean 'Window'?"),
        ("Window(lft=2)", "Window has no field 'lft'; did you mean 'left'?"),
        ("Window", "Window needs left"),
        ("Window(1, 2, 3, 4, 5, 6)", "Window has 5 fields (left, right, dropout, cap, sink), given 6 values"),
        ("Window(1, left=2)", "Window: left is given twice"),
        ("Window('wide')", "Window.left is 'wide', expected a whole number"),
        ("Window(-3)", "0 or more tokens to each side"),
        ("Performer(features=0)", "Performer.features is 0"),
        ("__import__('os').system('true')", "cannot read"),
        ("().__class__", "cannot read"),
        ("[x for x in (1,)]", "cannot read"),
        ("lambda: 1", "cannot read"),
        ("1 + 1", "cannot read"),
        ("Window(**{'left': 2})", "cannot read"),
        ("Window(", "cannot read the value"),
        ("(" * 300, "cannot read the value"),
        ("9" * 600, "cannot read the value"),
        ("b'bytes'", "cannot read"),
    ],
)
def test_other_words_are_refused_in_one_line_and_never_run(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_one_line(text: str) -> None:
    try:
        parse(text)
    except SpecError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_written_down_can_be_read_again(name: str) -> None:
    small = [node for node in single(**CHOICES[name]).nodes() if len(repr(node)) <= LONGEST_VALUE]
    assert len(small) > 4
    for node in small:
        assert parse(str(node)) == node
        assert parse(repr(node)) == node
    edit = {"Attention.kernel": kernels.Window(left=3), "Tower.depth": 2}
    assert apply_edits(single(), edits_as_text(edit)) == apply_edits(single(), edit)


def test_an_edit_may_be_of_one_side() -> None:
    spec = apply_edits(pair(), {"encoder.Attention.kernel": "Linformer(rank=4)"})
    assert spec.encoder.block.attention.kernel == kernels.Linformer(rank=4)
    assert spec.decoder == pair().decoder
    for edit, words in {
        "encodr.Attention.kernel": "EncoderDecoder has no part 'encodr'; did you mean 'encoder'?",
        "Atention.kernel": "there is no kind 'Atention'; did you mean 'Attention'?",
        "Attention": "is not Kind.field",
        "Attention.kernal": "Attention has no field 'kernal'; did you mean 'kernel'?",
        "Rope.theta": "there is no Rope to edit",
    }.items():
        with pytest.raises(SpecError, match=words):
            apply_edits(pair(), {edit: "1"})


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_weights_of_the_checkpoint_stay_and_new_ones_are_named(kernel: str, tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path / "bert")
    plain = ch.load(tmp_path / "bert")
    swapped = ch.load(tmp_path / "bert", edit={"Attention.kernel": KERNELS[kernel]})
    theirs, ours = plain.model.state_dict(), swapped.model.state_dict()
    assert all(torch.equal(x, ours[name]) for name, x in theirs.items())
    assert swapped.report.fresh == tuple(name for name in ours if name not in theirs)
    assert bool(swapped.report.fresh) == (kernel in ("Linformer", "Softmax"))
    ids = torch.arange(2, 14).reshape(2, 6)
    assert kernel == "Tiled" or not torch.equal(plain.model(ids), swapped.model(ids))
    # Saved and opened again, by nothing but its folder, it is the same model.
    ch.save(swapped, tmp_path / "again")
    again = ch.load(tmp_path / "again")
    assert again.spec == swapped.spec and again.report.fresh == ()
    assert torch.equal(again.model(ids), swapped.model(ids))
    back, from_it = (
        ch.load(tmp_path / place, edit={"Attention.kernel": "Tiled"}) for place in ("bert", "again")
    )
    assert torch.equal(back.model(ids), from_it.model(ids))


def test_half_precision_checkpoints_stay_half(tmp_path: Path) -> None:
    bert().bfloat16().save_pretrained(tmp_path)
    bundle = ch.load(tmp_path, edit={"Attention.kernel": "Linformer(4)"})
    assert {p.dtype for p in bundle.model.parameters()} == {torch.bfloat16}


def test_a_config_cannot_name_anything_but_choices(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for said, words in {
        "nonsense": "is not",
        '{"edit": ["Attention.kernel"]}': "is not",
        '{"edit": {"Attention.kernel": 3}}': "is not",
        '{"edit": {"Attention.kernel": "exec(1)"}}': "unknown spec kind 'exec'",
    }.items():
        value = json.loads(said) if said.startswith("{") else said
        (tmp_path / "config.json").write_text(json.dumps({**config, "clearhead": value}))
        with pytest.raises((LoadError, SpecError), match=words):
            ch.load(tmp_path)


def test_transformers_opens_a_swapped_folder(tmp_path: Path) -> None:
    import transformers

    bert().save_pretrained(tmp_path / "bert")
    bundle = ch.load(tmp_path / "bert", edit={"Attention.kernel": "Linear"})
    ch.save(bundle, tmp_path / "swapped")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "swapped")
    assert theirs.config.clearhead == {"edit": {"Attention.kernel": "Linear"}}


SENSE = [
    (name, kernel)
    for name in ("gpt2", "llama", "bert", "albert", "transformer", "bart", "mistral")
    for kernel in KERNELS
]


@pytest.mark.parametrize(("name", "kernel"), SENSE)
@torch.no_grad()
def test_any_kernel_in_any_family_or_one_sentence(name: str, kernel: str) -> None:
    """It runs, forwards and with a cache, or says why not; nothing in between."""
    family = FAMILIES[name]
    sizes = {key: value for key, value in TINY.items() if key in family.defaults}
    try:
        model = ch.build(name, edit={"Attention.kernel": KERNELS[kernel]}, **sizes).model
        ids = torch.arange(2, 10)[None]
        both = (ids, ids) if isinstance(model, cn.EncoderDecoderModel) else (ids,)
        assert bool(model(*both).isfinite().all())
    except ClearheadError as error:
        assert "\n" not in str(error) and len(str(error)) < 250
        refused = {"Linformer", "Nystrom"} if family.mode == "causal" else set()
        if isinstance(ch.build(name, **sizes).model, cn.EncoderDecoderModel):
            refused = {"Linformer", "Nystrom", "Window", "Summary"}
        if name == "mistral":
            refused |= {"Linear", "Performer", "Summary"}
        assert kernel in refused, error


def run(words: list[str]) -> int:
    with pytest.raises(SystemExit) as done:
        main(words)
    return int(done.value.code or 0)


def test_set_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpt2().save_pretrained(tmp_path)
    folder = str(tmp_path)
    assert run(["inspect", folder, "--set", "Attention.kernel=Window(left=3)"]) == 0
    assert "Window(left=3)" in capsys.readouterr().out
    assert run(["inspect", "gpt2", "--diff", "gpt2", "--set", "Attention.kernel=Linear", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["after"]["cache"] < said["before"]["cache"]  # sums instead of keys
    assert run(["inspect", folder, "--set", "Attention.kernel=Linformer"]) == 2
    said = capsys.readouterr().err
    assert "early words would see late ones" in said and said.count("\n") == 1
    assert run(["inspect", folder, "--set", "Attention.kernel"]) == 2
    assert "--set takes Kind.field=value" in capsys.readouterr().err
    assert run(["certify", folder, "--set", "Attention.kernel=Tiled(tile=5)", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
    assert run(["certify", folder, "--set", "Attention.kernel=Window(1)", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["what"] for row in rows if row["check"] == "invariance" and row["passed"]} == {
        "cache on and off", "alone and in a batch", "prompt in chunks", "save and load"
    }  # fmt: skip

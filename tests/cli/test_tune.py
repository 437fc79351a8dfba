"""`clearhead tune` as a person uses it: rows decide what is learned, and bad input loses nothing."""

import json
import shlex
from pathlib import Path

import pytest
import torch
import yaml
from tiny_chats import CHATS, CLEAN, saved, tokenizer, write

import clearhead as ch
from clearhead.cli.main import main
from clearhead.recipes.methods import METHODS
from clearhead.text import train_tokenizer

LINES = ["a warm and funny film", "a slow and dull film", "a warm play", "a dull song"]
ROWS = [
    {"text": f"{line} {i}", "label": "good" if "warm" in line else "bad"} for i in range(8) for line in LINES
]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
FEW = ["--steps", "2", "--batch-size", "8", "--max-length", "16"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main([str(word) for word in words])
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An encoder without a head."""
    words = train_tokenizer(LINES, kind="wordpiece", vocab=90, frame="cls-sep")
    bundle = ch.build("bert", task="hidden", vocab_size=words.vocab, **SIZES)
    bundle.tokenizer = words
    ch.save(bundle, tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", ROWS)


@pytest.fixture
def speaker(tmp_path: Path) -> Path:
    """A tiny language model with a chat template."""
    return saved(tmp_path / "speaker", tokenizer(CLEAN))


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    return write(tmp_path / "chats.jsonl", CHATS * 3)


def test_rows_with_labels_make_an_adapter_with_a_head(
    base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = contents(base), tmp_path / "run"
    code, said, progress = run(capsys, "tune", base, rows, *FEW, "--out", out)
    assert code == 0 and str(out) in said
    assert "12 linear layers" in progress and "trainable parameters" in progress
    assert contents(base) == before
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in out.iterdir()}
    assert not (out / "model.safetensors").exists()
    guessed = json.loads(run(capsys, "predict", out, "a warm film", "--json")[1])
    assert {guess["text"] for guess in guessed["guesses"]} == {"good", "bad"}
    scores = run(capsys, "eval", out, rows, "--json")[1]
    assert json.loads(scores)["rows"] == len(ROWS)


@pytest.mark.parametrize("method", METHODS)
def test_every_method(
    method: str, base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    code, _, progress = run(capsys, "tune", base, rows, *FEW, "--method", method, "--out", out)
    assert code == 0, progress
    tuned = ch.load(out)
    assert tuned.labels == {0: "bad", 1: "good"}
    whole = method in ("bias", "head", "full")
    assert (out / "model.safetensors").exists() == whole and (tuned.tuning is None) == whole
    assert "Traceback" not in progress
    command = next(line for line in progress.splitlines() if line.startswith("tune"))
    assert METHODS[method].settings["kind"] in command


def test_the_words_of_other_libraries_are_the_same_settings(
    speaker: Path, chats: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = run(
        capsys, "tune", speaker, chats, "--method", "dora", "--rank", "4", "--alpha", "8", "--targets",
        "c_attn", "--tune.dropout", "0.1", "--quantize", "int4", "--lr", "1e-3", "--print-config",
    )[1]  # fmt: skip
    assert yaml.safe_load(wanted)["tune"]["rank"] == 4
    for words in (
        "--finetuning_type lora --use_dora true --lora_rank 4 --lora_alpha 8 --lora_target c_attn "
        "--lora_dropout 0.1 --quantize int4 --learning_rate 1e-3 --stage sft",
        "--use_dora --lora_r 4 --lora-alpha 8 --lora_target_modules c_attn --lora-dropout 0.1 "
        "--load_in_4bit --learning-rate 1e-3",
        "--peft_type lora --use_dora --r 4 --lora_alpha 8 --target_modules c_attn --lora_dropout 0.1 "
        "--load-in-4bit true --lr 1e-3",
    ):
        code, said, error = run(capsys, "tune", speaker, chats, *words.split(), "--print-config")
        assert (code, said) == (0, wanted), error


def test_a_dry_run_tells_what_would_be_trained_and_writes_nothing(
    speaker: Path, chats: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(tmp_path)
    words = ["tune", speaker, chats, "--dry-run", "--out", tmp_path / "run", *FEW[:4]]
    code, said, progress = run(capsys, *words)
    assert code == 0 and contents(tmp_path) == before
    assert "memory" in said and "about" in said
    assert "6 linear layers" in progress and "trainable parameters" in progress
    assert "tokens of a row" in progress and "the answers" in progress
    found = json.loads(run(capsys, *words, "--json")[1])
    assert found["layers"] == 6 and found["trainable"] > 0 and found["memory"] > 0 and found["seconds"] > 0
    assert found["trained_tokens"]["mean"] > 0


def test_chats_over_quantized_weights_go_on_from_a_checkpoint_and_from_an_adapter(
    speaker: Path, chats: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    words = ["tune", speaker, chats, "--quantize", "int8", "--batch-size", "2", "--lr", "1e-2"]
    words += ["--schedule", "constant"]
    ask = ["say red", "--max-new-tokens", "3"]
    assert run(capsys, *words, "--steps", "4", "--out", one)[0] == 0
    assert run(capsys, *words, "--steps", "2", "--train.save_every", "1", "--out", two)[0] == 0
    code, _, progress = run(capsys, "tune", "--resume", two, "--train.steps", "4")
    assert code == 0, progress
    first, second = (ch.load(speaker, adapter=folder).model.state_dict() for folder in (one, two))
    assert all(torch.equal(first[name], second[name]) for name in first)
    code, _, progress = run(capsys, "tune", one, chats, "--steps", "1", "--out", tmp_path / "three")
    assert code == 0, progress
    assert run(capsys, "chat", tmp_path / "three", "-m", "say red", "--max-new-tokens", "3")[0] == 0
    code, said, _ = run(capsys, "generate", speaker, *ask, "--adapter", one, "--quantize", "int8")
    assert code == 0 and said.strip()
    without = run(capsys, "generate", one, *ask, "--adapter", "none")[1]
    assert without == run(capsys, "generate", speaker, *ask)[1]


BAD = {
    "--rank 0": "rank is 0",
    "--rank 1.5": "rank is 1.5",
    "--rank -4": "rank is -4",
    "--rank many": "rank is 'many'",
    "--alpha 0": "alpha is 0",
    "--tune.dropout 1.5": "dropout is 1.5",
    "--method loraa": "lora",
    "--method qlora": "lora",
    "--targets '*.attn.quer'": "matches no linear layer",
    "--targets embed.table": "a table",
    "--targets attn_norm": "is for linear layers",
    "--targets ''": "no targets",
    "--method prefix --rank 4": "rank",
    "--method lora --length 4": "length",
    "--method prefix --virtual-tokens 0": "length is 0",
    "--method prompt --virtual-tokens 9999": "length is 9999",
    "--method pissa --rank 4096": "singular directions",
    "--method full --quantize int8": "int8 weights do not learn",
    "--quantize int3": "int3",
    "--rank": "--rank",
    "--ranks 4": "rank",
    "--recipe nothing": "no recipe",
    "--stage dpo": "preferences",
    "--modules_to_save nothing.at.all": "matches no parameter",
    "--method head --freeze 'head.*'": "leaves no parameter",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_settings_are_one_line_and_leave_nothing(
    words: str, base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(tmp_path)
    code, said, error = run(capsys, "tune", base, rows, *FEW, "--out", tmp_path / "run", *shlex.split(words))
    assert code == 2 and not said, error
    last = error.strip().splitlines()[-1]
    assert BAD[words] in last and "Traceback" not in error and "Error:" not in last.split(" ", 1)[0]
    assert contents(tmp_path) == before and not (tmp_path / "run").exists()


def test_bad_files_are_one_line(
    base: Path, rows: Path, speaker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = write(tmp_path / "empty.jsonl", [])
    preferences = write(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}] * 8)
    adapter = tmp_path / "adapter"
    assert run(capsys, "tune", base, rows, *FEW, "--out", adapter)[0] == 0
    for words, part in (
        ((base,), "a file of rows"),
        ((base, tmp_path / "nowhere.jsonl"), "nowhere.jsonl"),
        ((tmp_path / "nowhere", rows), "nowhere"),
        ((base, empty), "empty"),
        ((speaker, preferences), "preference"),
        ((adapter, rows, "--method", "lora"), "tuned already"),
        ((rows, base), "rows.jsonl"),
    ):
        code, _, error = run(capsys, "tune", *words, "--out", tmp_path / "run")
        last = error.strip().splitlines()[-1]
        assert code == 2 and part in last and "Traceback" not in error, (words, error)
        assert not (tmp_path / "run").exists()
    code, _, error = run(capsys, "predict", speaker, "a film", "--adapter", adapter)
    assert code == 2 and "Traceback" not in error


def test_an_adapter_of_another_base_is_refused(
    base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "tune", base, rows, *FEW, "--out", tmp_path / "run")[0] == 0
    other = ch.load(base)
    with torch.no_grad():
        next(other.model.parameters()).add_(0.1)
    ch.save(other, tmp_path / "other")
    words = ["predict", tmp_path / "other", "a film", "--adapter", tmp_path / "run"]
    code, _, error = run(capsys, *words)
    assert code == 2 and "trained over other weights" in error and "--any-base" in error
    assert run(capsys, *words, "--any-base")[0] == 0
    (tmp_path / "base").rename(tmp_path / "moved")
    code, _, error = run(capsys, "predict", tmp_path / "run", "a film")
    assert code == 2 and "is not here" in error and "--adapter" in error
    assert run(capsys, "predict", tmp_path / "moved", "a film", "--adapter", tmp_path / "run")[0] == 0


def test_help_of_every_method(capsys: pytest.CaptureFixture[str]) -> None:
    for method, settings in METHODS.items():
        code, out, _ = run(capsys, "tune", "--help", method)
        shown = " ".join(out.split())
        assert code == 0 and settings.about in shown and "--tune.modules_to_save" in shown
    _, out, _ = run(capsys, "tune", "--help")
    words = "".join(out.replace("│", "").split())  # a list of words is broken anywhere
    assert all(method in words for method in METHODS)
    code, _, err = run(capsys, "tune", "--help", "lorra")
    assert code == 2 and "did you mean 'lora'" in err


def test_what_other_libraries_would_do_with_a_model_and_its_adapter(
    base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "tune", base, rows, "--out", tmp_path / "mine", *FEW)[0] == 0
    code, _, err = run(capsys, "merge", base, tmp_path / "mine", "--out", tmp_path / "merged")
    assert (
        code == 2 and "is an adapter: to put it into its base" in err and not (tmp_path / "merged").exists()
    )
    assert (
        run(capsys, "merge", base, tmp_path / "mine", "--method", "linear", "--out", tmp_path / "half")[0]
        == 0
    )


def test_a_run_is_resumed_with_its_own_tuning(
    base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "tune", base, rows, "--out", tmp_path / "mine", *FEW)[0] == 0
    before = contents(tmp_path / "mine")
    for words, why in (
        (["--rank", "4"], "tune.rank is 4 here and 8 in the run"),
        (["--method", "prefix"], "what learns is Prefix here and Lora in the run"),
    ):
        code, _, err = run(capsys, "tune", "--resume", tmp_path / "mine", *words)
        assert code == 2 and why in err
    assert contents(tmp_path / "mine") == before


@pytest.mark.parametrize("method", METHODS)
def test_the_next_commands_are_those_that_work(
    method: str, base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "tune", base, rows, "--method", method, "--out", tmp_path / "mine", *FEW)
    assert code == 0
    merges = METHODS[method].settings["kind"] in ("Lora", "IA3")
    assert ("merge" in out) == merges
    if merges:
        assert run(capsys, "merge", tmp_path / "mine", "--out", tmp_path / "merged")[0] == 0


def test_an_output_folder_that_leads_to_itself(
    base: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    code, _, err = run(capsys, "tune", base, rows, "--out", tmp_path / "loop", *FEW)
    assert code == 2 and "is a link that leads to itself" in err and "Traceback" not in err

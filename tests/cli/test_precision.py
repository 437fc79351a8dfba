"""`--precision` of every command that asks a model: prepared by itself, or refused in one line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from trained import trained, write

import clearhead as ch
from clearhead.cli.main import main
from clearhead.cli.opening import open_prepared
from clearhead.engine import PRECISIONS, preparation
from clearhead.errors import InputError
from clearhead.nn import CACHE_PRECISIONS, TransformerModel
from clearhead.text import Tokenizer

TEXT = "The quick brown fox"
ROOT = Path(__file__).parents[2]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with a chat template, which every command can ask."""
    place = tmp_path_factory.mktemp("model")
    vocab = trained("bytes").get_vocab_size()
    bundle = ch.build(
        "gpt2", n_embd=32, n_layer=2, n_head=2, n_positions=128, vocab_size=vocab, eos_token_id=1
    )
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    bundle.tokenizer = Tokenizer.read(write(place / "t", "bytes", chat_template=template))
    ch.save(bundle, place / "model")
    (place / "lines.txt").write_text("the quick brown fox\na lazy dog\n")
    return place


COMMANDS = {
    "generate": ["MODEL", TEXT, "--max", "4", "--min-new-tokens", "4", "--json"],
    "chat": ["MODEL", "-m", TEXT, "--max", "4", "--min-new-tokens", "4", "--json"],
    "embed": ["MODEL", "LINES"],
    "eval": ["MODEL", "LINES", "--json"],
}


def words_of(command: str, folder: Path) -> list[str]:
    paths = {"MODEL": str(folder / "model"), "LINES": str(folder / "lines.txt")}
    return [command, *(paths.get(word, word) for word in COMMANDS[command])]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_program_generates_in_every_precision(folder: Path, precision: str) -> None:
    words = [*words_of("generate", folder), "--precision", precision]
    done = subprocess.run(
        [sys.executable, "-m", "clearhead", *words], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["tokens"]) == 4


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prepares_by_itself_or_as_it_is_told(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[str] = []
    prepare = ch.Bundle.prepare

    def watched(bundle: ch.Bundle, *given: object, **options: object) -> ch.Bundle:
        result = prepare(bundle, *given, **options)
        found = preparation(bundle.model)
        assert found is not None
        prepared.append(found.precision)
        return result

    monkeypatch.setattr(ch.Bundle, "prepare", watched)
    words = words_of(command, folder)
    outputs = [run(capsys, *words, *more) for more in ([], ["--precision", "int8"], ["--quantize", "int8"])]
    assert [code for code, _, _ in outputs] == [0, 0, 0], outputs
    assert prepared == ["float32", "int8", "int8"]
    assert outputs[1] == outputs[2]


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_the_precision_of_the_cache(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    cache = TransformerModel.cache
    monkeypatch.setattr(
        TransformerModel, "cache", lambda self, *size: made.append(self.cache_precision) or cache(self, *size)
    )
    for precision in CACHE_PRECISIONS:
        code, _, err = run(capsys, *words_of(command, folder), "--cache-precision", precision)
        assert code == 0, err
    assert tuple(dict.fromkeys(made)) == CACHE_PRECISIONS
    code, out, err = run(capsys, *words_of(command, folder), "--cache-precision", "float8")
    assert code == 2 and out == "" and err.count("\n") == 1 and "cache_precision is 'float8'" in err


def test_without_a_precision_it_is_the_stored_one(folder: Path, tmp_path: Path) -> None:
    ch.load(folder / "model").to("bfloat16").save(tmp_path / "half")
    found = preparation(open_prepared(str(tmp_path / "half")).model)
    assert found is not None and found.precision == "bfloat16"
    exact = preparation(open_prepared(str(tmp_path / "half"), precision="float32").model)
    assert exact is not None and exact.precision == "float32"


def test_off_the_cpu_nothing_is_packed_and_a_float_precision_is_a_dtype(folder: Path) -> None:
    model = str(folder / "model")
    plain, half = (open_prepared(model, device="meta", precision=each) for each in (None, "bfloat16"))
    assert preparation(plain.model) is None and preparation(half.model) is None
    assert (plain.dtype, half.dtype) == (torch.float32, torch.bfloat16)
    with pytest.raises(InputError, match="--precision int8 is for the CPU, and the device is meta"):
        open_prepared(model, device="meta", precision="int8")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--precision", "int3"], "precision is 'int3'; did you mean 'int4'?"),
        (["--precision", "int8", "--quantize", "int8"], "specified multiple times"),
        (["--precision", "int4", "--device", "meta"], "--precision int4 is for the CPU"),
        (["--keep", "--device", "meta"], "--keep is for the CPU"),
        (["--keep"], "keep=True is for int8, int8-fine, int4; float32 is packed in a moment"),
        (["--threads", "0"], "threads is 0"),
        (["--threads", "9999"], "threads is 9999; expected 1 to"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    command: str, words: list[str], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words_of(command, folder), *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and expected in err, err


def test_quantized_weights_are_kept_and_read_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "model", tmp_path / "model")
    words = [*words_of("generate", tmp_path), "--precision", "int8"]
    first = run(capsys, *words)
    assert first[0] == 0 and not (tmp_path / "model" / "clearhead").exists()
    assert run(capsys, *words, "--keep") == first == run(capsys, *words)
    assert (tmp_path / "model" / "clearhead" / "int8.safetensors").is_file()


def test_threads_are_set(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.get_num_threads()
    try:
        assert run(capsys, *words_of("generate", folder), "--threads", "1")[0] == 0
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_cpu_without_the_product_is_noted_once(folder: Path) -> None:
    program = """
import sys
from clearhead.engine import int8

def missing(*_):
    raise RuntimeError("no engine")

int8._pack = missing
from clearhead.cli.main import main
main(sys.argv[1:])
"""
    words = [*words_of("generate", folder), "--precision", "int8"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and len(json.loads(done.stdout)["tokens"]) == 4
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("no fast int8 product on this machine (no engine)")

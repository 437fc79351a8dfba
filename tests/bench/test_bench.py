"""Benches with models of a few thousand weights: everyone does the same work, and the table says so."""

import json
from pathlib import Path

import ggufs
import pytest
import torch

import clearhead as ch
from clearhead.bench import timing
from clearhead.bench.embed import RatedPair, rank_correlation
from clearhead.bench.process import TimedRows
from clearhead.bench.task import DECODE_PEERS, Decoder, DecodeTask
from clearhead.cli.main import main
from clearhead.engine import PRECISIONS
from clearhead.errors import InputError
from clearhead.text.training import train_tokenizer

IDS = {"bos_token_id": 0, "eos_token_id": 0}
PAIR = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 100,
    "decoder_vocab_size": 100, "max_position_embeddings": 64, "pad_token_id": 99,
    "decoder_start_token_id": 99, "forced_eos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
TINY = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 100, **IDS},
    "transformer": PAIR,
}
SHORT = ("--prompt", "5", "--tokens", "6", "--rounds", "1", "--threads", "1")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    before = torch.get_num_threads()
    with pytest.raises(SystemExit) as done:
        main(list(words))
    torch.set_num_threads(before)
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.mark.filterwarnings("ignore")  # the peers' own
@pytest.mark.parametrize(("family", "beams"), [("gpt2", 1), ("transformer", 1), ("transformer", 3)])
def test_everyone_decodes_the_same_tokens(
    family: str, beams: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2", reason="needs ctranslate2 to compare with")
    ch.save(ch.build(family, **TINY[family]), tmp_path / "model")
    words = ("bench", "decode", str(tmp_path / "model"), "--batch", "1", "2", "--beams", str(beams), *SHORT)
    code, out, _ = run(capsys, *words, "--json")
    said = json.loads(out)
    assert code == 0 and said["tokens"] == 6 and said["missing"] == []
    assert [(point["batch"], point["prompt"]) for point in said["points"]] == [(1, 5), (2, 5)]
    for point in said["points"]:
        sides = {side["side"]: side for side in point["sides"]}
        peers = ["transformers float32", "ctranslate2 float32", "ctranslate2 int8"]
        assert list(sides) == [*(f"clearhead {precision}" for precision in PRECISIONS), *peers]
        assert sides["clearhead float32"]["same_tokens"] == 1.0
        assert sides["transformers float32"]["same_tokens"] == 1.0
        for side in sides.values():
            assert side["tokens_per_second"] > 0 and side["with_prompt"] > 0 and side["prompt_seconds"] > 0
            assert (side["memory_share"] is None) == (point["batch"] > 1 or beams > 1)
        int8, theirs = sides["clearhead int8"], sides["ctranslate2 int8"]
        ratio = int8["tokens_per_second"] / theirs["tokens_per_second"]
        assert int8["times"]["ctranslate2"] == pytest.approx(ratio)
        assert "ctranslate2" not in sides["clearhead bfloat16"]["times"]
    assert "transformers" in said["machine"] and "1 thread" in said["machine"]


@pytest.mark.filterwarnings("ignore")
def test_llama_cpp_decodes_the_same_tokens_from_the_same_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xllamacpp", reason="needs xllamacpp to compare with")
    path = ggufs.write(tmp_path / "model.gguf", ggufs.llama())
    words = ("bench", "decode", str(path), "--batch", "1", "2", "--precision", "float32")
    code, out, err = run(capsys, *words, "--peers", "llama.cpp", "transformers-bfloat16", *SHORT, "--json")
    assert code == 0, err
    said = json.loads(out)
    assert said["missing"] == []
    for point in said["points"]:
        sides = {side["side"]: side for side in point["sides"]}
        assert list(sides) == ["clearhead float32", "transformers bfloat16", "llama.cpp F32"]
        assert sides["llama.cpp F32"]["same_tokens"] == 1.0
        assert sides["clearhead float32"]["times"].keys() == {"llama.cpp"}


def test_decoding_is_all_tokens_but_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock on which a prompt takes 3 seconds and a token half a second."""

    def timed(decode: Decoder, ids: list[list[int]], task: DecodeTask) -> TimedRows:
        return TimedRows(decode(ids, task), 3.0 + 0.5 * task.tokens)

    ch.save(ch.build("gpt2", **TINY["gpt2"]), tmp_path / "model")
    monkeypatch.setattr("clearhead.bench.decode.timed", timed)
    words = ("bench", "decode", str(tmp_path / "model"), "--peers", "none", "--precision", "float32")
    (point,) = json.loads(run(capsys, *words, "--batch", "2", *SHORT, "--json")[1])["points"]
    (side,) = point["sides"]
    assert side["tokens_per_second"] == pytest.approx(2 / 0.5)
    assert side["prompt_seconds"] == pytest.approx(3.5)
    assert side["with_prompt"] == pytest.approx(2 * 6 / (3.0 + 6 * 0.5))


@pytest.mark.filterwarnings("ignore")
def test_a_missing_or_failing_side_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ch.save(ch.build("gpt2", **TINY["gpt2"]), tmp_path / "model")
    monkeypatch.setitem(DECODE_PEERS, "ctranslate2", "nobody-wrote-this")
    words = ("bench", "decode", str(tmp_path / "model"), "--precision", "float32", "int8", *SHORT)
    code, out, err = run(capsys, *words)
    assert code == 0
    assert "ctranslate2 (not installed: pip install nobody-wrote-this)" in " ".join(err.split())
    assert "clearhead float32" in out and "transformers float32" in out and "100 %" in out
    code, out, err = run(capsys, *words, "--peers", "llama.cpp")
    assert code == 0 and "llama.cpp" in err and "clearhead int8" in out and "transformers" not in out


@pytest.mark.filterwarnings("ignore")
def test_vectors_are_the_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["the cat sat on a mat", "a dog ran", "the dog sat", "a cat ran on the mat and sat"]
    tokenizer = train_tokenizer(texts, kind="wordpiece", vocab=90, frame="cls-sep")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    bundle = ch.build("bert", task="hidden", vocab_size=tokenizer.vocab, **sizes)
    bundle.tokenizer = tokenizer
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    bundle.files = {
        "modules.json": json.dumps(modules).encode(),
        "1_Pooling/config.json": json.dumps(pooling).encode(),
    }
    ch.save(bundle, tmp_path / "model")
    rows = ["n\tone\ttwo\trating"] + [f"{i}\t{texts[i]}\t{texts[-i]}\t{i}.5" for i in range(1, 4)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    words = ("bench", "embed", str(tmp_path / "model"), "--pairs", str(tmp_path / "pairs.tsv"))
    code, out, _ = run(capsys, *words, "--rounds", "1", "--threads", "1", "--json")
    said = json.loads(out)
    own = [f"clearhead {precision}" for precision in ("float32", "bfloat16", "int8")]
    assert code == 0 and list(said["speeds"]) == [*own, "sentence-transformers"]
    assert said["cosine"]["clearhead float32"] > 0.99999 and said["cosine"]["clearhead int8"] > 0.99
    assert said["cosine"]["clearhead bfloat16"] > 0.999 and said["spearman"].keys() == said["speeds"].keys()
    theirs = said["spearman"]["sentence-transformers"]
    assert said["spearman"]["clearhead float32"] == pytest.approx(theirs)
    code, out, _ = run(capsys, *words, "--rounds", "1", "--threads", "1", "--precision", "int8-fine")
    assert code == 0 and "clearhead int8-fine" in out and "clearhead float32" not in out and "Spearman" in out


def test_rank_correlation_is_spearmans() -> None:
    from scipy.stats import spearmanr

    key = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(40, 8, generator=key), dim=-1)
    ratings = torch.randint(0, 5, (20,), generator=key).float().tolist()  # many ties
    names = [f"{i:02}" for i in range(40)]
    pairs = [RatedPair(names[i], names[i + 20], rating) for i, rating in enumerate(ratings)]
    found = rank_correlation(lambda texts: torch.stack([vectors[names.index(text)] for text in texts]), pairs)
    likeness = (vectors[:20] * vectors[20:]).sum(-1)
    assert found == pytest.approx(100 * spearmanr(likeness.numpy(), ratings).statistic, abs=1e-4)


def test_turns_are_taken_in_rounds() -> None:
    order: list[str] = []
    sides = {name: (lambda name=name: order.append(name) or 3) for name in ("one", "two")}
    speeds = timing.measure_in_turns(sides, 2, lambda _: None)
    assert order == ["one", "two"] * 3 and set(speeds) == {"one", "two"}  # a warm-up, then two rounds
    with pytest.raises(InputError, match="rounds is 0"):
        timing.measure_in_turns(sides, 0, lambda _: None)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("bench", "decode", "--threads", "999"), "threads is 999"),
        (("bench", "decode", "--beams", "0"), "--beams is 0"),
        (("bench", "decode", "bert-base", "--rounds", "1"), "give a model that generates"),
        (("bench", "decode", "--batch", "1", "0"), "--batch is 0"),
        (("bench", "decode", "--tokens", "1"), "--tokens is 1, expected 2 or more"),
        (("bench", "decode", "--rounds", "0"), "rounds is 0"),
        (("bench", "decode", "--precision", "int9"), "precision is 'int9'"),
        (("bench", "decode", "--peers", "lama.cpp"), "did you mean 'llama.cpp'?"),
        (("bench", "decode", "gpt2", "--prompt", "1000"), "need 1064 positions, and the model has 1024"),
        (("bench", "embed", "./nowhere", __file__, "--precision", "float64"), "precision is 'float64'"),
        (("bench", "embed", "./nowhere"), "nothing to embed"),
        (("bench", "embed", "./nowhere", "--pairs", "./nobody.tsv"), "not a table of rated pairs"),
        (("bench", "walk"), "walk"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert expected in err, err

"""The program as a person uses it: words in, text or JSON out, one line and exit 2 for what is wrong."""

import json
import re
from pathlib import Path

import pytest
from references import REFERENCES

import clearhead as ch
from clearhead.certify.certificate import DIRECT, Certificate, CertificateRow
from clearhead.cli.families import families_page, readme_table
from clearhead.cli.main import main
from clearhead.families import FAMILIES, SIZES

README = Path(__file__).parents[2] / "README.md"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.fixture
def folder(tmp_path: Path) -> str:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": 40}
    ch.save(ch.build("gpt2", **sizes), tmp_path / "model")
    return str(tmp_path / "model")


@pytest.mark.parametrize("size", SIZES)
def test_every_named_size_can_be_inspected(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "inspect", size, "--json")
    said = json.loads(out)
    assert code == 0 and err == ""
    assert said["family"] == SIZES[size].name
    assert said["parameters"] == sum(said["parts"].values()) > 1e6


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("gpt3", 174_604_259_328), ("gpt2-xl", 1_557_611_200), ("llama-7b", 6_738_415_616),
        ("llama2-70b", 68_976_648_192), ("llama-65b", 65_285_660_672), ("transformer-10k", 59_508_496),
        ("bert-base", 109_514_298), ("bert-large", 335_174_458), ("gpt2", 124_439_808),
        ("t5-small", 60_506_624), ("bart-large", 406_341_721), ("llama3.1-8b", 8_030_261_248),
        ("gemma2-2b", 2_614_341_888), ("mistral-7b", 7_241_732_096), ("qwen3-0.6b", 596_049_920),
    ],
)  # fmt: skip
def test_published_sizes(size: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(capsys, "inspect", size, "--json")[1])["parameters"] == count


def test_inspect_says_what_a_folder_is(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", folder)
    assert code == 0
    facts = (
        "GPT-2", "causal", "2 layers x 2 heads (width 16, head 8)", "positions learned, 32",
        "7,744 parameters", "28 of 28 tensors used", "ids work, text does not", "float32",
    )  # fmt: skip
    for words in facts:
        assert words in out, out


def test_the_difference_of_two_models(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(run(capsys, "inspect", "bert-base", "--diff", "roberta-base", "--json")[1])
    rows = {row["places"][0]: row for row in said["changes"]}
    vocabulary = rows["tower.embed.vocab"]
    assert (vocabulary["before"], vocabulary["after"]) == (30522, 50265)
    assert vocabulary["cost"]["parameters"] - said["before"]["parameters"] == (50265 - 30522) * (768 + 1)
    assert rows["tower.embed.norm.eps"]["cost"] == said["before"]
    code, out, _ = run(capsys, "inspect", "gpt2", "--diff", "gpt2-medium")
    assert code == 0 and "tower.depth" in out and "together" in out
    assert "together: +230 M parameters (+185%) · +59.9 GFLOP (+186%) · +15.7 MB of cache (+167%)" in out
    assert json.loads(run(capsys, "inspect", "gpt2", "--diff", "gpt2", "--json")[1])["changes"] == []
    assert run(capsys, "inspect", "gpt2", "--diff", "t5-small")[0] == 0


def test_families_are_listed_with_their_tree(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "families")
    assert code == 0 and all(family.title in out for family in FAMILIES.values())
    assert "├── BERT 2018" in out and "│   ├── RoBERTa 2019" in out
    rows = json.loads(run(capsys, "families", "--json")[1])
    assert [row["name"] for row in rows] == list(FAMILIES)
    assert all(row["parent"] is None or row["parent"] in FAMILIES for row in rows)


def test_one_family_is_described_by_its_name_model_type_or_size(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("transformer", "marian", "transformer-base"):
        facts = json.loads(run(capsys, "families", name, "--json")[1])
        assert (facts["name"], facts["model_type"]) == ("transformer", "marian")
        assert facts["classes"]["tokens"] == "MarianMTModel"
        assert facts["sizes"]["transformer-10k"] == 59_508_496 and "bert" in facts["children"]
    code, out, _ = run(capsys, "families", "roberta")
    assert code == 0 and "RobertaForMaskedLM" in out and "124,697,433" in out and "from bert" in out


def test_readme_and_docs_have_the_tables_of_families() -> None:
    assert readme_table() in README.read_text()
    assert families_page() in (README.parent / "docs" / "families.md").read_text()


def test_certify_prints_a_table_and_exits_1_when_something_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    REFERENCES["bert/tokens/plain"].files(tmp_path)
    code, out, _ = run(capsys, "certify", str(tmp_path))
    assert code == 0 and re.search(
        r"ours = transformers \S+: (at most \S+ apart in any|bit-identical in all) of the 5 layers", out
    )
    assert "18 checks, 0 failed" in out
    said = json.loads(run(capsys, "certify", str(tmp_path), "--json")[1])
    assert said["passed"] and len(said["rows"]) == 18 and said["verdict"] in out
    monkeypatch.setattr("clearhead.certify.certificate.TOLERANCE", 0.0)
    code, out, _ = run(capsys, "certify", str(tmp_path), "--full")
    assert code == 1 and "FAIL" in out


def test_the_verdict_names_the_layer_that_is_furthest_off() -> None:
    rows = tuple(
        CertificateRow(DIRECT, name, apart, 2e-5) for name, apart in (("blocks.0.out", 1e-7), ("answer", 6.4))
    )
    assert Certificate("BART", 1, rows[:1], "transformers 5").verdict.startswith(
        "ours = transformers 5: at most 1.0e-07"
    )
    said = "ours differs from transformers 5: {} apart at answer"
    assert Certificate("BART", 1, rows, "transformers 5").verdict == said.format("6.4e+00")
    lost = (*rows[:1], CertificateRow(DIRECT, "answer", float("nan"), 2e-5))
    assert Certificate("BART", 1, lost, "transformers 5").verdict == said.format("nan")
    assert Certificate("BART", 1, (), "none: not installed").verdict.endswith("none: not installed")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("inspect",), "--what requires an argument"),
        (("inspect", "bert-bas"), "did you mean 'bert-base'?"),
        (("inspect", "./nowhere"), "nowhere"),
        (("inspect", "bert-base", "--dif", "gpt2"), "--diff"),
        (("inspect", "bert-base", "--length", "many"), "many"),
        (("inspekt", "bert-base"), "inspect"),
        (("certify", "./nowhere"), "nowhere"),
        (("families", "berd"), "did you mean 'bert'?"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = run(capsys, *words)
    assert code == 2 and out == ""
    assert err.startswith("clearhead: ") and err.count("\n") == 1 and expected in err, err

"""`clearhead merge` in a terminal: what it writes, what it prints, what it refuses."""

import hashlib
import json
from pathlib import Path

import ggufs
import huggingface_hub
import peft
import pytest
import torch
import transformers
from checkpoints import block_sockets
from tolerance import assert_close

import clearhead as ch
from clearhead.cli.main import main
from clearhead.nn import generator
from clearhead.recipes import read_mergekit
from clearhead.recipes.merge_words import MERGE_WORDS, NEAREST_METHODS, SAME_WORDS
from clearhead.tune import Full, Lora, Prefix, Ties, Tuning

LINES = ["the cat sat on a mat", "a dog ran in the park"]
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}  # fmt: skip
IDS = torch.randint(0, 40, (2, 9), generator=generator(0, "ids"))


def tuned(base: ch.Bundle, tuning: Tuning, seed: int) -> ch.Bundle:
    made = ch.tune(base, tuning, seed=seed)
    with torch.no_grad():
        for name in made.tuning.trained:
            p = made.model.get_parameter(name)
            p.add_(torch.randn(p.shape, generator=generator(seed, name)), alpha=0.05)
    return made


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    tokenizer = ch.text.train_tokenizer(LINES * 3, vocab=50)
    base = ch.build("llama", vocab_size=tokenizer.vocab, **SIZES)
    base.tokenizer = tokenizer
    base.save(place / "base")
    base = ch.load(place / "base")
    tuned(base, Lora(rank=3), 1).save(place / "one")
    tuned(base, Lora(rank=2, targets="*.attn"), 2).save(place / "two")
    tuned(base, Prefix(length=2), 2).save(place / "prefix")
    for seed, name in ((3, "whole"), (4, "other")):
        tuned(base, Full(), seed).merged().save(place / name)
    ch.build("llama", vocab_size=tokenizer.vocab + 1, **SIZES).save(place / "larger")
    return place


@pytest.fixture
def run(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `merge` beside the models; names of models are links to them."""
    block_sockets(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for path in models.iterdir():
        (tmp_path / path.name).symlink_to(path)

    def start(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as done:
            main(["merge", *words])
        out, err = capsys.readouterr()
        return int(done.value.code or 0), out, err

    return start


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@torch.no_grad()
def logits(bundle: ch.Bundle) -> torch.Tensor:
    return bundle.model(IDS)


def test_an_adapter_goes_into_its_base(run, models: Path, tmp_path: Path) -> None:
    before = hashes(models)
    code, out, err = run("one", "--out", "merged")
    assert code == 0 and err == "", err
    lines = out.splitlines()
    assert lines[0] == "merged     one into base" and lines[2].startswith("difference ")
    assert float(lines[2].split()[1]) < 1e-5
    assert (
        lines[3:] == ["saved      merged", 'next       clearhead generate merged "a text"']
        or "-m" in lines[4]
    )
    expected = logits(ch.load(models / "one"))
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "merged").eval()
    with torch.no_grad():
        assert_close(theirs(IDS).logits, expected)
    card = (tmp_path / "merged" / "README.md").read_text()
    assert "merged with Clearhead from `one` over `base`" in card and str(models) not in card
    assert (tmp_path / "merged" / "tokenizer.json").exists()
    assert run("base", "--adapter", "one", "--out", "again")[0] == 0
    assert run("one", "--base", "base", "--out", "third", "--json")[0] == 0
    same = [hashes(tmp_path / name)["model.safetensors"] for name in ("merged", "again", "third")]
    assert len(set(same)) == 1
    assert hashes(models) == before


def test_an_adapter_goes_into_its_base_in_another_number_format(run, models: Path, tmp_path: Path) -> None:
    code, out, _ = run("one", "--out", "half", "--dtype", "bfloat16", "--json")
    found = json.loads(out)
    assert code == 0 and found["folder"] == "half" and found["difference"] < 0.1
    exact = ch.load(models / "one", dtype="float64").merged().model.state_dict()
    half = ch.load(tmp_path / "half").model.state_dict()
    assert all(torch.equal(x, exact[name].bfloat16()) for name, x in half.items())


@pytest.mark.parametrize("word", [*MERGE_WORDS, *SAME_WORDS])
def test_every_word_for_a_method(word: str, run, models: Path, tmp_path: Path) -> None:
    chosen = {**MERGE_WORDS, **SAME_WORDS}[word]
    rank = ["--rank", "4"] if chosen.rank == "given" else []
    code, out, err = run("one", "two", "--out", "merged", "--method", word.replace("-", "_"), *rank, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["method"]["kind"] == chosen.kind.__name__ and 0 < found["changed"] <= 1
    assert found["merged"] == ["one", "two"] and Path(found["base"]).name == "base"
    merged = ch.load(tmp_path / "merged")
    assert (merged.tuning is None) == (chosen.rank is None)
    expected = {"given": 4, "exact": 5}.get(chosen.rank or "")
    assert found["rank"] == expected
    if chosen.rank is not None:
        theirs = transformers.LlamaForCausalLM.from_pretrained(models / "base")
        theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "merged").eval()
        with torch.no_grad():
            assert_close(logits(merged), theirs(IDS).logits)


def test_settings_of_a_method(run, models: Path, tmp_path: Path) -> None:
    options = ["--method", "ties", "--density", "0.5,0.25", "--weights", "-0.5,2", "--scale", "0.7"]
    code, out, err = run("one", "two", "--out", "merged", *options, "--set", "Ties.average=count")
    assert (
        code == 0 and "Ties(weights=(-0.5, 2.0), scale=0.7, density=(0.5, 0.25), average='count')" in out
    ), err
    method = Ties(weights=(-0.5, 2.0), scale=0.7, density=(0.5, 0.25), average="count")
    expected = ch.merge([models / "one", models / "two"], method)
    assert torch.equal(logits(ch.load(tmp_path / "merged")), logits(expected))
    for seed in ("1", "2"):
        run("whole", "other", "--base", "base", "--method", "dare", "--seed", seed, "--out", seed)
    run("whole", "other", "--base", "base", "--method", "dare", "--seed", "2", "--out", "2b")
    weights = [hashes(tmp_path / name)["model.safetensors"] for name in ("1", "2", "2b")]
    assert weights[0] != weights[1] == weights[2]


def test_names_of_models(run, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub id and a .gguf file, as a model and as the base of an adapter."""
    ggufs.write(tmp_path / "llama.gguf", ggufs.llama())
    base = ch.load(tmp_path / "llama.gguf")
    base.save(tmp_path / "llama")
    tuned(base, Lora(rank=2), 1).save(tmp_path / "over")
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda repo_id, **_: str(tmp_path / repo_id.split("/")[1])
    )
    assert run("org/llama", "llama.gguf", "--out", "same")[0] == 0
    assert torch.equal(logits(ch.load(tmp_path / "same")), logits(base))
    code, _, err = run("llama.gguf", "--adapter", "over", "--out", "merged")
    assert code == 0 and "weights of llama.gguf are read as float32" in err
    assert_close(logits(ch.load(tmp_path / "merged")), logits(ch.load(base, adapter=tmp_path / "over")))
    assert run("org/over", "org/over", "--method", "cat", "--out", "twice")[0] == 0
    both = ch.merge([tmp_path / "over", tmp_path / "over"], rank="exact")  # weights of a .gguf: read once
    assert both.base is not None and both.tuning.value.rank == 4
    assert_close(logits(both), logits(ch.load(base, adapter=tmp_path / "over")))


CONFIG = """
models:
  - model: one
    parameters: {weight: 0.4}
  - model: two
    parameters: {weight: 0.6}
merge_method: ties
base_model: base
parameters: {density: 0.5}
out_dtype: float16
"""


def test_a_config_of_mergekit(run, models: Path, tmp_path: Path) -> None:
    (tmp_path / "merge.yml").write_text(CONFIG)
    code, out, err = run("merge.yml", "--out", "merged")
    assert code == 0 and "merged     one, two over base · Ties(weights=(0.4, 0.6)" in out, err
    expected = ch.merge(
        [models / "one", models / "two"], Ties(weights=(0.4, 0.6), density=0.5), dtype="float16"
    )
    merged = ch.load(tmp_path / "merged")
    assert merged.dtype == torch.float16 and torch.equal(logits(merged), logits(expected))
    code, _, err = run("merge.yml", "--out", "x", "--density", "0.2")
    assert code == 2 and "--density is said by merge.yml" in err
    code, _, err = run("merge.yml", "--out", "two")
    assert code == 2 and "two, which holds a model already" in err


CONFIGS = {
    "tokenizer_source: union": "'tokenizer_source' is not supported",
    "merge_method: della": "'della' is not supported; the nearest here is 'dare-ties'",
    "merge_method: passthrough": "stacks layers of several models",
    "merge_method: tise": "did you mean 'ties'",
    "parameters: {density: 0.5, gamma: 0.1}": "'gamma' is not supported",
    "parameters: {density: much}": "density is 'much'; expected a number",
    "parameters: {density: 0.5, normalize: 1}": "normalize is 1; expected true or false",
    "parameters: {density: 0.5, rescale: true}": "rescale is for dare_linear and dare_ties",
    "base_model: null": "merges differences to a base; expected base_model",
    "models: [{model: one}]": "weight is missing for ",
    "models: [{model: base}]": "no model besides 'base'",
    "models: [{model: one, weight: 1}]": "'weight' is not supported; supported: model, parameters",
    "models: one": "models is 'one'; expected a list",
    "slices: []": "expected models, a list, or slices",
    "dtype: int8": "int8 weights cannot be merged",
    "dtype: float31": "dtype is 'float31'; did you mean 'float16'",
}


@pytest.mark.parametrize("line", CONFIGS)
def test_what_a_config_says_and_is_not_supported_is_refused(line: str, run, tmp_path: Path) -> None:
    key = line.split(":")[0]
    blocks = ["\n" + block for block in CONFIG.strip().split("\n")]
    text = "".join(block for block in blocks if not block.startswith((f"\n{key}:", "\nout_dtype")))
    if key == "models":
        text = text.replace("\n  - model: one", "").replace("\n    parameters: {weight: 0.4}", "")
        text = text.replace("\n  - model: two", "").replace("\n    parameters: {weight: 0.6}", "")
    (tmp_path / "merge.yml").write_text(f"{text}\n{line}\n")
    code, out, err = run("merge.yml", "--out", "merged")
    assert code == 2 and out == "" and CONFIGS[line] in err.replace("\n", " "), err
    assert not (tmp_path / "merged").exists()


def test_slices_with_all_layers_are_models(run, tmp_path: Path) -> None:
    text = """
slices:
  - sources:
      - {model: whole, layer_range: [0, LAYERS]}
      - {model: other, layer_range: [0, 2]}
merge_method: slerp
base_model: other
parameters: {t: [0, 1]}
"""
    path = tmp_path / "merge.yml"
    path.write_text(text.replace("LAYERS", "2"))
    plan = read_mergekit(path)
    assert plan.models == ("other", "whole") and plan.base is None and plan.method.t == 0.0
    assert ("tower.blocks.1.attn.q.weight", 1.0) in plan.method.t_pattern
    path.write_text(text.replace("LAYERS", "1"))
    assert "only all layers can be merged, [0, 2]" in run("merge.yml", "--out", "x")[2]
    path.write_text(text.replace("slices:\n", "slices:\n  - sources: []\n"))
    assert "slices that are stacked are not supported" in run("merge.yml", "--out", "x")[2]


REFUSED = {
    "": "name an adapter, or several models",
    "base": "base is a model and no adapter",
    "one --method tis": "did you mean 'ties'",
    "one two --weights 1,-1": "add up to 0",
    "one two --weights 1": "1 weights for 2 models",
    "one two --weights nan,1": "expected numbers with commas between them",
    "one two --weights a,b": "expected numbers with commas between them",
    "one two --method ties --density 0": "Ties.density is 0.0, expected a number above 0",
    "one two --method ties --density 1.5": "Ties.density is 1.5, expected a number above 0",
    "one two --density 0.5": "density is for the methods ties, dare, dare-ties",
    "one two --t 0.5": "t is for the methods slerp",
    "one two --rank 0": "--rank is '0'",
    "one two --rank exact --method ties": "give a number, such as rank=16",
    "one two --method svd": "give it, such as --rank 16",
    "one two --dtype int4": "int4 weights cannot be merged",
    "one --dtype int4": "int4 weights cannot be merged",
    "one --weights 1": "--weights is for merging several models",
    "one two --adapter one": "--adapter is for one model",
    "one --adapter none": "there is nothing to merge",
    "base --adapter one --base base": "leave --base out",
    "one two whole --method slerp": "Slerp merges 2 models; given 3",
    "whole --method slerp": "Slerp merges 2 models or more; given 1",
    "whole other --method ties": "give the model that these were fine-tuned from",
    "whole other --base base": "leave the base out",
    "whole other --rank 4": "rank is for adapters",
    "whole larger": "vocabulary",
    "one prefix": "Prefix cannot be merged into the weights",
    "prefix": "Prefix cannot be merged into the weights",
    "one two --base larger": "was trained over other weights",
    "one two --set Ties.average=count": "there is no Ties to edit",
    "one two --method ties --set Ties.avrage=count": "did you mean 'average'",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    words: str, run, models: Path, tmp_path: Path
) -> None:
    before = hashes(models)
    code, out, err = run(*words.split(), "--out", "merged")
    assert code == 2 and out == "" and err.startswith("clearhead: ") and err.count("\n") == 1
    assert REFUSED[words] in err
    assert not (tmp_path / "merged").exists() and hashes(models) == before


@pytest.mark.parametrize("word", NEAREST_METHODS)
def test_methods_of_others_are_refused_with_the_nearest(word: str, run) -> None:
    err = run("one", "two", "--out", "x", "--method", word)[2]
    assert f"the nearest here is '{NEAREST_METHODS[word]}'" in err
    assert NEAREST_METHODS[word] in {**MERGE_WORDS, **SAME_WORDS}


def test_no_model_is_overwritten(run, models: Path, tmp_path: Path) -> None:
    before = hashes(models)
    for out, why in (("one", "one of the models"), ("base", "holds a model"), ("two/", "one of the models")):
        code, _, err = run("one", "two", "--out", out)
        assert code == 2 and why in err
    code, _, err = run("whole", "other", "--base", "base", "--method", "ties", "--out", "base")
    assert code == 2 and "one of the models" in err
    (tmp_path / "file").touch()
    assert "a file; name a folder" in run("one", "--out", "file")[2]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("kept")
    assert run("one", "--out", "notes")[0] == 0 and (tmp_path / "notes" / "mine.txt").read_text() == "kept"
    assert hashes(models) == before

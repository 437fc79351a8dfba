"""`clearhead generate` and `chat` as a person uses them: clean stdout, one line for what is wrong."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from trained import trained, write

import clearhead as ch
from clearhead.cli.main import main
from clearhead.text import Tokenizer

TEXT = "The quick brown fox"
TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>{% endif %}"
)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model")
    vocab = trained("bytes").get_vocab_size()
    bundle = ch.build(
        "gpt2", n_embd=24, n_layer=2, n_head=2, n_positions=128, vocab_size=vocab, eos_token_id=1
    )
    with torch.no_grad():
        for p in bundle.model.parameters():
            p += torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.3
    bundle.tokenizer = Tokenizer.read(write(place / "t", "bytes", chat_template=TEMPLATE))
    ch.save(bundle, place / "m")
    return str(place / "m")


def test_a_text_gets_an_answer_and_stdout_nothing_else(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "generate", folder, TEXT, "--max", "9")
    assert (code, err) == (0, "")
    assert out == f"{ch.load(folder).generate(TEXT, max_new_tokens=9)}\n"


def test_options_are_settings(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--max-new-tokens", "8", "--beams", "3", "--length-penalty", "0.5", "--early-stopping", "never",
             "--no-repeat", "2", "--repetition-penalty", "1.3", "--stop", "zz", "--stop", "yy"]  # fmt: skip
    code, out, _ = run(capsys, "generate", folder, TEXT, *words)
    settings = {"max_new_tokens": 8, "num_beams": 3, "length_penalty": 0.5, "early_stopping": "never",
                "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "stop": ["zz", "yy"]}  # fmt: skip
    assert code == 0 and out == f"{ch.load(folder).generate(TEXT, **settings)}\n"
    drawn = [
        run(capsys, "generate", folder, TEXT, "--sample", "--seed", seed, "--max", "8")[1] for seed in "112"
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_answer_can_be_begun_by_hand(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "generate", folder, TEXT, "--max", "5", "--json", "--begin", "40", "41")
    assert code == 0 and [token["id"] for token in json.loads(out)["tokens"][:2]] == [40, 41]
    assert run(capsys, "generate", folder, TEXT, "--max", "5", "--begin", "999999")[0] == 2


def test_several_answers_are_numbered_with_their_scores(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(
        capsys, "generate", folder, TEXT, "--beams", "3", "--n", "3", "--max", "4", "--no-repeat", "2"
    )
    scores = [float(line.split()[1]) for line in out.splitlines() if line[:1] in "123"]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)


def test_json_has_log_probabilities(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--json", "--max", "5", "--alternatives", "2"]
    said = json.loads(run(capsys, "generate", folder, TEXT, *words)[1])
    assert said["prompt"] == TEXT and len(said["tokens"]) == 5 and said["reason"] == "length"
    assert sum(token["logprob"] for token in said["tokens"]) == pytest.approx(said["logprob"])
    assert all(len(token["alternatives"]) == 2 for token in said["tokens"])
    tree = json.loads(
        run(capsys, "generate", folder, TEXT, "--beams", "2", "--show-beams", "--json", "--max", "3")[1]
    )
    assert {node["fate"] for node in tree["tree"]} == {"kept", "finished", "pruned"}


def test_beams_and_alternatives_are_shown(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "generate", folder, TEXT, "--beams", "2", "--show-beams", "--max", "3")
    assert "step" in out and "pruned" in out and "finished" in out
    _, out, _ = run(capsys, "generate", folder, TEXT, "--alternatives", "3", "--max", "3")
    assert "or else" in out and out.count("%") == 3 + 6


def test_lines_are_answered_in_order(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = [TEXT, "今天天气很好", "A"]
    answers = [str(ch.load(folder).generate(line, max_new_tokens=6)).replace("\n", "\\n") for line in lines]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    assert run(capsys, "generate", folder, "-", "--max", "6")[1].splitlines() == answers
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    file = ["--file", str(tmp_path / "lines.txt")]
    assert run(capsys, "generate", folder, *file, "--max", "6")[1].splitlines() == answers
    told = run(capsys, "generate", folder, *file, "--max", "6", "--json")[1].splitlines()
    assert [json.loads(line)["prompt"] for line in told] == lines


def test_an_empty_line_has_an_empty_answer(
    folder: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("A\n\n \nA\n", encoding="utf-8")
    file = ["--file", str(tmp_path / "lines.txt"), "--max", "4"]
    one, *none, last = run(capsys, "generate", folder, *file)[1].splitlines()
    assert one == last != "" and none == ["", ""]
    assert [
        json.loads(line)["text"] for line in run(capsys, "generate", folder, *file, "--json")[1].splitlines()
    ][1] == ""


def test_a_draft_gives_the_same_answer(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", folder, TEXT, "--max", "12"]
    assert run(capsys, *words, "--draft", folder)[1] == run(capsys, *words)[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "give a text, - for stdin, or --file"),
        ([""], "the prompt is empty"),
        ([TEXT, "--file", "x"], "give a text, - for stdin, or --file"),
        (["--file", "nowhere.txt"], "nowhere.txt is not a file"),
        ([TEXT, "--beams", "0"], "num_beams is 0, expected a whole number from 1"),
        ([TEXT, "--top-p", "1.5"], "top_p is 1.5, expected a number from 0 to 1"),
        ([TEXT, "--n", "3"], "use num_beams or do_sample"),
        ([TEXT, "--temperature", "0.5", "--no-sample"], "temperature needs sampling"),
        ([TEXT, "--max", "5000"], "the model has 128; ask for at most"),
        (["dog " * 200], "the model 128 positions; shorten the prompt"),
        ([TEXT, "--show-beams"], "--show-beams shows beam search; add --beams 4"),
        ([TEXT, "--bems", "4"], "Unknown option: --bems"),
        ([TEXT, "--max", "many"], "many"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_2(
    words: list[str], why: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "generate", folder, *words)
    assert (code, out) == (2, "")
    assert err.startswith("clearhead: ") and err.count("\n") == 1 and why in err


def test_a_model_that_does_not_speak(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    ch.save(ch.build("bert", vocab_size=20, **sizes), tmp_path / "m")
    code, out, err = run(capsys, "generate", str(tmp_path / "m"), TEXT)
    assert (code, out) == (2, "") and "BERT cannot generate text" in err and "clearhead predict" in err


# --- chat ---


def test_a_message_gets_a_reply(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "chat", folder, "--message", "hi", "--system", "be kind", "--max", "7")
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert (code, err) == (0, "") and out == f"{ch.load(folder).generate(messages, max_new_tokens=7)}\n"
    told = json.loads(run(capsys, "chat", folder, "-m", "hi", "--json", "--max", "7")[1])
    assert told["prompt"] == "hi" and len(told["tokens"]) <= 7


def test_a_conversation_remembers(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = ch.load(folder)
    first = {"role": "user", "content": "hi"}
    one = bundle.generate([first], max_new_tokens=4)
    again = [first, {"role": "assistant", "content": one}, {"role": "user", "content": "and?"}]
    two = bundle.generate(again, max_new_tokens=4)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\nand?\n/new\nhi\n"))
    code, out, err = run(capsys, "chat", folder, "--max", "4")
    assert code == 0 and out == f"{one}\n{two}\n{one}\n" and "a new conversation" in err


def test_a_model_without_a_template_does_not_chat(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ch.save(ch.build("gpt2", n_embd=8, n_layer=1, n_head=1, vocab_size=20), tmp_path / "m")
    code, out, err = run(capsys, "chat", str(tmp_path / "m"), "-m", "hi")
    assert (code, out) == (2, "") and "has no chat template" in err and err.count("\n") == 1
    code, _, err = run(capsys, "chat", str(tmp_path / "m"), "--json")
    assert code == 2 and "--json needs --message" in err


@pytest.mark.parametrize("word", ["exit", "quit", "/exit", "/quit", "/bye", "EXIT"])
def test_a_word_that_ends_a_conversation_is_not_sent(
    word: str, folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"hi\n{word}\nhi\n"))
    code, out, _ = run(capsys, "chat", folder, "--max", "4")
    want = ch.load(folder).generate([{"role": "user", "content": "hi"}], max_new_tokens=4)
    assert code == 0 and out == f"{want}\n"


def test_commands_of_a_chat_are_answered_and_not_sent(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("/help\n/nwe\nhi\n"))
    code, out, err = run(capsys, "chat", folder, "--max", "4")
    want = ch.load(folder).generate([{"role": "user", "content": "hi"}], max_new_tokens=4)
    assert code == 0 and out == f"{want}\n"
    assert "/new starts a new conversation" in err and "there is no command /nwe" in err
    path = [{"role": "user", "content": "/etc/hosts"}]
    code, out, _ = run(capsys, "chat", folder, "-m", "/etc/hosts", "--max", "4")
    assert out == f"{ch.load(folder).generate(path, max_new_tokens=4)}\n"
    code, out, _ = run(capsys, "chat", folder, "-m", "/help", "--max", "4")  # one message is a message
    assert code == 0 and out

"""Chats as training rows: what the assistant says is learned, and nothing else; the run can then chat."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import chat_templates
import pytest
import torch
import transformers
from chat_templates import STYLES
from tiny_chats import CHATS, CLEAN, ENDLESS, prepared, saved, tokenizer, write

import clearhead as ch
from clearhead.bundle import text_generator
from clearhead.cli.main import main
from clearhead.data import CompletionExample, encode_completions
from clearhead.errors import DataError, InputError, LoadError
from clearhead.recipes import evaluate_file, load_run, prepare
from clearhead.text import Tokenizer
from clearhead.text.chat import render_chats


def learned(example: CompletionExample, words: Tokenizer) -> str:
    chosen = [i for i, flag in zip(example.ids, example.flags, strict=True) if flag]
    return words.decode(chosen, specials=True)


# --- answers, and what they follow ---


def test_what_the_assistant_says_is_learned_and_the_end_of_it() -> None:
    words = tokenizer(CLEAN)
    end = words.eos.text
    examples = encode_completions("messages", CHATS, words, [words.eos.id]).examples
    for row, example in zip(CHATS, examples, strict=True):
        assert words.decode(example.ids, specials=True) == words.chat(row["messages"], reply=False)
        first, second = row["messages"][1]["content"], row["messages"][3]["content"]
        # The template's header of an answer is in no generation prompt, so the model writes it.
        assert learned(example, words) == f"<assistant>{first}{end}<assistant>{second}{end}"


def test_a_template_that_rewrites_history_makes_an_example_of_each_answer() -> None:
    words = tokenizer(
        "{{ messages | length }}{% for m in messages %} {{ m.content }}{% endfor %}{{ eos_token }}"
    )
    examples = encode_completions("messages", CHATS[:1], words, [words.eos.id]).examples
    end = words.eos.text
    read = [words.decode(example.ids, specials=True) for example in examples]
    assert read == [f"1 say red{end}red it is{end}", f"3 say red red it is again{end}red{end}"]
    assert [learned(example, words) for example in examples] == [f"red it is{end}", f"red{end}"]


def test_an_answer_that_begins_a_chat_is_context() -> None:
    words, rows = tokenizer(CLEAN), [{"messages": CHATS[0]["messages"][1:]}]
    (example,) = encode_completions("messages", rows, words, [words.eos.id]).examples
    assert learned(example, words) == f"<assistant>red{words.eos.text}"


def test_the_bundle_is_fed_what_it_was_trained_on(tmp_path: Path) -> None:
    """From the row of training to the ids that `bundle.generate` gives to the model, for a saved run."""
    found = prepared(tmp_path, tokenizer())
    ch.save(found.bundle, tmp_path / "out")
    bundle, task = ch.load(tmp_path / "out"), found.task
    contexts = []
    for ids, flags in zip(task.splits["train"], task.trained["train"], strict=True):
        contexts += [ids[:i] for i in range(1, len(ids)) if flags[i] and not flags[i - 1]]
    prompts = [row["messages"][:i] for row in CHATS for i in (1, 3)]
    assert contexts == text_generator(bundle, {}).encode_prompts(prompts)
    assert any("4 chats make 8 examples" in note for note in found.notes)  # "assistant: " and "red"


@pytest.mark.parametrize("kind", chat_templates.KINDS)
def test_the_plain_template_writes_what_the_tokenizer_puts_before_texts(kind: str, tmp_path: Path) -> None:
    words = Tokenizer.read(chat_templates.write(tmp_path / "t", kind, bos=True))
    assert words is not None
    found = prepared(tmp_path, words)
    bos, ids = words.bos.id, found.task.splits["train"][0]
    assert ids[0] == bos and ids.count(bos) == 1
    found.bundle.save(tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    messages = CHATS[0]["messages"][:1]
    fed = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert fed == ids[: len(fed)] and not any(found.task.trained["train"][0][: len(fed)])


def test_prompts_without_a_template_begin_like_texts(tmp_path: Path) -> None:
    words = Tokenizer.read(chat_templates.write(tmp_path / "t", "byte-bpe", bos=True))
    assert words is not None
    rows = [{"prompt": "say red", "completion": "It is"}]
    (example,) = encode_completions("prompt", rows, words, [words.eos.id]).examples
    assert words.decode(example.ids, specials=True) == "<s>say red\nIt is</s>"
    assert example.ids[: example.answers[0][0]] == words.encode("say red\n").ids
    assert learned(example, words) == "It is</s>"


# --- what templates do not write ---


def test_reasoning_is_put_behind_the_tag_that_the_generation_prompt_opens(tmp_path: Path) -> None:
    style = STYLES["deepseek-r1"]
    words = Tokenizer.read(chat_templates.write(tmp_path / "t", "byte-bpe", chat_template=style.template))
    assert words is not None
    ask = {"role": "user", "content": "say red"}
    rows = [
        {"messages": [ask, {"role": "assistant", "content": "red", "reasoning_content": "Let me think."}]},
        {"messages": [ask, {"role": "assistant", "content": "<think>\nLet me think.\n</think>\n\nred"}]},
        {"messages": [ask, {"role": "assistant", "content": "red"}]},
    ]
    encoded = encode_completions("messages", rows, words, [words.eos.id])
    thought = "Let me think.\n</think>\n\nred</s>"
    assert [learned(each, words) for each in encoded.examples] == [thought, thought, "\n</think>\n\nred</s>"]
    for example in encoded.examples:
        context = words.decode(example.ids[: example.answers[0][0]], specials=True)
        assert context == "<s><｜User｜>say red<｜Assistant｜><think>\n"
    assert encoded.notes == ()


def test_what_a_template_ignores_is_noted_and_calls_are_written_as_text() -> None:
    words = tokenizer(CLEAN)
    call = {"type": "function", "function": {"name": "colour", "arguments": {"of": "it"}}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "look"}
    row = {"messages": [{"role": "user", "content": "a"}, calling], "tools": [call]}
    encoded = encode_completions("messages", [row], words, [words.eos.id])
    answer = '<assistant>{"name": "colour", "arguments": {"of": "it"}}' + words.eos.text
    assert learned(encoded.examples[0], words) == answer
    assert [note.partition(": ")[0] for note in encoded.notes] == [
        "the chat template does not write tools",
        "the chat template does not write tool_calls",
        "the chat template does not write reasoning_content",
    ]


def test_tools_reach_the_template(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "colour", "arguments": {"of": "it"}}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    row = {"messages": [{"role": "user", "content": "a"}, calling], "tools": [call]}
    template = STYLES["qwen-3"].template
    words = Tokenizer.read(chat_templates.write(tmp_path / "t", "byte-bpe", chat_template=template))
    assert words is not None
    encoded = encode_completions("messages", [row], words, [words.id_of("<|im_end|>")])
    read = words.decode(encoded.examples[0].ids, specials=True)
    assert "<tools>\n" + json.dumps(call) + "\n</tools>" in read and encoded.notes == ()
    assert '<tool_call>\n{"name": "colour", "arguments": {"of": "it"}}\n</tool_call>' in read
    bundle = ch.load(saved(tmp_path / "base", words))
    (fed,) = text_generator(bundle, {"tools": row["tools"]}).encode_prompts([row["messages"][:1]])
    assert fed == encoded.examples[0].ids[: len(fed)] and len(fed) == encoded.examples[0].answers[0][0]
    with pytest.raises(InputError, match="tools is 'weather', expected a list of"):
        bundle.generate(row["messages"][:1], tools="weather")


# --- the end of an answer ---


def test_a_template_without_an_end_is_an_error_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would teach a model to talk on."""
    file, base = write(tmp_path / "x.jsonl", CHATS), saved(tmp_path / "base", tokenizer(ENDLESS))
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "train",
                "sft",
                str(file),
                "--valid",
                str(file),
                "--from",
                str(base),
                "--out",
                str(tmp_path / "o"),
            ]
        )
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2 and not (tmp_path / "o").exists()
    assert r"the chat template ends answers with ': red it is\n' and no end token" in line
    assert "add {{ eos_token }} after the assistant's content in chat_template.jinja" in line
    assert "--data.template auto" in line
    with pytest.raises(SystemExit) as ended:
        main(["data", "check", str(file), "--tokenizer", str(base)])
    assert ended.value.code == 3 and "no end token" in capsys.readouterr().err


def test_the_ways_out_that_the_error_names_are_ones(tmp_path: Path) -> None:
    mended = ENDLESS.replace("}\n", "}{{ eos_token }}\n")
    for ids in prepared(tmp_path, tokenizer(mended)).task.splits["train"]:
        assert ids[-1] == tokenizer().eos.id
    rows = [{"prompt": "say red", "completion": f"red {i}"} for i in range(4)]
    (tmp_path / "two").mkdir()
    found = prepared(tmp_path / "two", tokenizer(), rows, "data.template=auto")
    for ids, flags in zip(found.task.splits["train"], found.task.trained["train"], strict=True):
        assert ids[-1] == tokenizer().eos.id and flags[-1] == 1 and ids.count(tokenizer().eos.id) == 1


@pytest.mark.parametrize("stored", [None, [2, 5]])
def test_a_special_token_that_ends_answers_becomes_a_stop_token(
    stored: list[int] | None, tmp_path: Path
) -> None:
    """Gemma's <end_of_turn>; what the checkpoint stopped at already stays."""
    words = Tokenizer.read(
        chat_templates.write(tmp_path / "t", "byte-bpe", chat_template=STYLES["gemma"].template)
    )
    assert words is not None
    base = saved(tmp_path / "base", words)
    if stored:
        (base / "generation_config.json").write_text(json.dumps({"eos_token_id": stored, "top_k": 7}))
    file = write(tmp_path / "x.jsonl", CHATS)
    settings = ["--train.steps", "2", "--train.save_every", "2", "--train.schedule.warmup", "1"]
    with pytest.raises(SystemExit) as ended:
        main(["train", "sft", str(file), "--valid", str(file), "--from", str(base), *settings,
              "--out", str(tmp_path / "o")])  # fmt: skip
    assert ended.value.code == 0
    turn = words.id_of("<end_of_turn>")
    written = json.loads((tmp_path / "o" / "generation_config.json").read_text())
    assert written["eos_token_id"] == [*(stored or [words.eos.id]), turn]
    assert written.get("top_k") == (7 if stored else None)
    assert turn in text_generator(ch.load(tmp_path / "o"), {}).settings.ends


def test_a_note_says_what_became_a_stop_token(tmp_path: Path) -> None:
    words = Tokenizer.read(
        chat_templates.write(tmp_path / "t", "byte-bpe", chat_template=STYLES["gemma"].template)
    )
    assert words is not None
    found = prepared(tmp_path, words)
    assert any(note.startswith("answers end with <end_of_turn>, at which generation") for note in found.notes)
    assert found.bundle.generation == {"eos_token_id": [words.eos.id, words.id_of("<end_of_turn>")]}
    assert not any("<end_of_turn>" in note for note in prepared(tmp_path, tokenizer(CLEAN)).notes)


def test_a_base_in_memory_keeps_its_settings(tmp_path: Path) -> None:
    words = Tokenizer.read(
        chat_templates.write(tmp_path / "t", "byte-bpe", chat_template=STYLES["gemma"].template)
    )
    assert words is not None
    base = ch.load(saved(tmp_path / "base", words))
    run = load_run("sft", [f"data.source={write(tmp_path / 'x.jsonl', CHATS * 3)}"])
    found = prepare(replace(run, data=replace(run.data, length=96)), base=base)
    assert found.bundle.generation and not base.generation


def test_an_end_token_that_is_the_padding_token_is_trained(tmp_path: Path) -> None:
    words = tokenizer(CLEAN)
    end = words.eos.id
    words.set_pad(end)
    task = prepared(tmp_path, words, CHATS, "data.smoothing=0.1", pad_token_id=end).task
    batch = task.batch(1, 0)
    assert task.pad == end and task.smoothing.unreal == ()
    assert int((batch.labels_BT == end).sum()) == 2 * len(CHATS)
    assert torch.equal(batch.labels_BT == -100, batch.labels_BT < 0)


def test_an_end_token_inside_an_answer_ends_it() -> None:
    """A file that has it in its texts already: it is trained once."""
    words = tokenizer(CLEAN)
    end = words.eos.text
    rows = [{"prompt": "say red", "completion": f"red{end}"}, {"prompt": "say", "completion": f"a{end}b"}]
    encoded = encode_completions("prompt", rows, words, [words.eos.id])
    assert [learned(each, words) for each in encoded.examples] == [
        f"<assistant>red{end}",
        f"<assistant>a{end}",
    ]
    assert encoded.notes == ("answers with an end token before their end, trained up to it: 1",)


# --- rows that are too long ---


def lengths(words: Tokenizer) -> tuple[int, int]:
    """Of the first chat: up to the end of its first answer, and of its second."""
    example = encode_completions("messages", CHATS[:1], words, [words.eos.id]).examples[0]
    return example.answers[0][1], example.answers[1][1]


def test_a_long_chat_ends_with_its_last_whole_answer_that_fits(tmp_path: Path) -> None:
    words = tokenizer(CLEAN)
    first, second = lengths(words)
    long = {"messages": [{"role": "user", "content": "say " * 90}, *CHATS[0]["messages"][1:]]}
    rows = [*CHATS[:1] * 3, long]
    for length in (first, second - 1):
        found = prepared(tmp_path, words, rows, f"data.length={length}")
        assert {len(ids) for ids in found.task.splits["train"]} == {first}
        assert all(ids[-1] == words.eos.id for ids in found.task.splits["train"])
        counts = f"train: 3 of 4 chats shortened to whole answers, 1 left out: longer than {length} tokens"
        assert any(note.startswith(counts) for note in found.notes), found.notes
    whole = prepared(tmp_path, words, rows, f"data.length={second}")
    assert {len(ids) for ids in whole.task.splits["train"]} == {second}
    assert any("0 of 4 chats shortened to whole answers, 1 left out" in note for note in whole.notes)


def test_a_prompt_whose_completion_does_not_fit_is_left_out(tmp_path: Path) -> None:
    words = tokenizer(CLEAN)
    rows = [{"prompt": "say red", "completion": text} for text in ("red", "red it is " * 9)]
    found = prepared(tmp_path, words, rows, "data.length=40")
    (ids,) = found.task.splits["train"]
    assert ids[-1] == words.eos.id and "red it" not in words.decode(ids)
    assert any("train: 1 left out: longer than 40 tokens (--max-length)" in note for note in found.notes)


def test_nothing_that_fits_is_an_error_with_the_longest_row(tmp_path: Path) -> None:
    words = tokenizer(CLEAN)
    first, second = lengths(words)
    with pytest.raises(DataError) as error:
        prepared(tmp_path, words, CHATS[:1], f"data.length={first - 1}")
    words_of_it = f"the shortest row needs {first} tokens, the longest has {second}; raise --max-length"
    assert f"no answer fits into --max-length {first - 1}" in str(error.value)
    assert words_of_it in str(error.value) and "\n" not in str(error.value)


def test_rows_of_several_examples_are_scored_as_what_they_are(tmp_path: Path) -> None:
    """Chats that make two examples each, one of them too long: texts and places must not slip."""
    words = tokenizer()
    long = {"messages": [{"role": "user", "content": "say " * 200}, *CHATS[0]["messages"][1:]]}
    file = write(tmp_path / "x.jsonl", [long, *CHATS])
    bundle = ch.load(saved(tmp_path / "base", words))
    report = evaluate_file(bundle, str(file))
    assert bundle.tokenizer.chat_template is None  # the plain one is only for the evaluation
    assert report.rows == 4 and "bits_per_byte" not in report.scores
    rows = {row.place: row.text for row in report.worst(99)}
    assert sorted(rows) == [f"line {i}" for i in range(2, 6)]
    assert all(rows[f"line {i + 2}"].startswith(CHATS[i]["messages"][0]["content"]) for i in range(4))
    whole = evaluate_file(ch.load(saved(tmp_path / "base", words)), str(write(tmp_path / "y.jsonl", CHATS)))
    size = sum(len(row["messages"][i]["content"].encode()) for row in CHATS for i in (1, 3))
    loss = sum(outcome.loss for outcome in whole.evaluation.outcomes)
    assert whole.scores["bits_per_byte"] == pytest.approx(loss / size / 0.6931472, rel=1e-5)


# --- rendering, and a run ---


def test_many_chats_are_one_process_and_one_bad_template_one_line() -> None:
    said = render_chats(
        "{{ messages[0].content }}", [([{"role": "user", "content": str(i)}], {}) for i in range(300)]
    )
    assert said == [str(i) for i in range(300)]
    with pytest.raises(LoadError, match="cannot be rendered"):
        render_chats("{{ nobody.home }}", [([{"role": "user", "content": "x"}], {})])


def test_the_chat_that_a_template_refuses_is_named() -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    chats = [([{"role": role, "content": f"I am {role}"}], {}) for role in ("user", "system")]
    with pytest.raises(LoadError, match=r"no system role \(the chat that begins with 'I am system'\)"):
        render_chats(template, chats)


def test_a_run_on_chats_can_chat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chats.jsonl").write_text("\n".join(json.dumps(row) for row in CHATS * 12), encoding="utf-8")
    settings = ["--train.steps", "4", "--train.save_every", "4", "--train.schedule.warmup", "1"]
    words = ["train", "gpt-chars", str(tmp_path / "chats.jsonl"), "--out", str(tmp_path / "run"), *settings]
    with pytest.raises(SystemExit) as done:
        main([*words, "--data.valid", str(tmp_path / "chats.jsonl"), "--json"])
    assert done.value.code == 0, capsys.readouterr().err
    bundle = ch.load(tmp_path / "run")
    assert bundle.tokenizer.chat([{"role": "user", "content": "hi"}]) == "user: hi\nassistant: "


def test_what_was_learned_is_what_is_answered(tmp_path: Path) -> None:
    """Four chats by heart: every answer comes back to the letter, and ends at the token of the template."""
    template = STYLES["gemma"].template
    words = Tokenizer.read(chat_templates.write(tmp_path / "t", "byte-bpe", chat_template=template))
    assert words is not None
    base = ch.load(saved(tmp_path / "base", words, width=64))
    settings: dict[str, Any] = {"train.steps": 60, "lr": 0.01, "seed": 2, "data.length": 96}
    quiet = ch.train.QuietProgress()
    tuned = ch.train(base, {"train": CHATS, "valid": CHATS}, recipe="sft", progress=quiet, **settings)
    for row in CHATS:
        for i in (1, 3):
            answer = tuned.answer(row["messages"][:i], max_new_tokens=20)
            assert answer.text == row["messages"][i]["content"]
            assert answer.reason == "end" and answer.tokens[-1].id == words.id_of("<end_of_turn>")

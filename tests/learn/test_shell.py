"""Every `sh` and `console` line of the documents is run as printed, in order, in a folder with tiny data.

The Chinese pages have the same code as the English ones (test_lessons.py, test_readme.py), so these are run.
Only what makes a command end in seconds is added (`SHORTER`); placeholders (FOLDER, FILE, MODEL, RUN) are
files of that name, and MODEL is a model that fits the command.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch
import trained
from tunings import move

import clearhead as ch
from clearhead.cli.main import main
from clearhead.tune import Lora

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if "zh" not in path.parts and re.search(r"^```(sh|console)$", path.read_text(), flags=re.M)
)
STEPS = [["--train.steps=2"], ["--train.schedule.warmup=1"]]  # later settings win
SHORTER = {
    # A model that knows nothing answers at length.
    "train translate-en-zh": [*STEPS, ["--data.valid=few.tsv"]],
    "train": STEPS,
    "tune": STEPS,
    "demo": [["--steps=2"]],
    "bench attention": [["Softmax", "Linear"], ["--lengths", "64", "128"], ["--rounds=1"]],
    "bench quality": [["--steps=2"]],
    "bench decode": [["--tokens=2"], ["--rounds=1"]],
    "bench train": [["--steps=2"], ["--rounds=1"]],
    "bench tune": [["--steps=2"], ["--rounds=1"], ["--tokens=2"]],
}
EXIT = {"learn clinic check": 1}  # what was copied out is still broken
ELSEWHERE = {
    "make": "run by hand and by CI as a whole",
    "pip": "would install into the environment that runs the tests",
    "git": "would touch the checkout",
    "source": "changes the shell",
}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"


def commands(page: Path) -> list[str]:
    """The lines one types: whole `sh` blocks, and what follows a $ in `console` blocks; no comments."""
    typed = []
    for kind, block in re.findall(r"^```(sh|console)\n(.*?)^```", page.read_text(), flags=re.M | re.S):
        lines = block.replace("\\\n", " ").splitlines()
        typed += [line for line in lines if kind == "sh"] + [
            line.removeprefix("$ ") for line in lines if kind == "console" and line.startswith("$ ")
        ]
    return [line for line in typed if shlex.split(line, comments=True)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `clearhead demo` leaves, after two steps."""
    home = tmp_path_factory.mktemp("demo")
    before = Path.cwd()
    os.chdir(home)
    try:
        assert run(["demo"]) == 0
    finally:
        os.chdir(before)
    return home / "runs" / "demo"


@pytest.fixture
def here(tmp_path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_LANG", "en")
    for name in ("runs/demo", "RUN"):
        shutil.copytree(demo, tmp_path / name)
    sizes = {"n_embd": 32, "n_layer": 4, "n_head": 8, "n_positions": 128}
    _model("gpt2", "bytes", tmp_path / "FOLDER", **sizes)
    _model("gpt2", "bytes", tmp_path / "writer", **sizes)
    _model("gpt2", "bytes", tmp_path / "chatter", chat_template=TEMPLATE, **sizes)
    bert = {"hidden_size": 48, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 96}
    for name in ("minilm", "reader"):
        _model("bert", "words", tmp_path / name, max_position_embeddings=64, **bert)
    _tuned_models(tmp_path)
    reviews = "".join(f"a {'good' if i % 2 else 'bad'} film number {i}\t{i % 2}\n" for i in range(40))
    for name in ("reviews", "other", "train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + reviews)
    for split in ("train", "test"):
        for label in ("pos", "neg"):
            (tmp_path / "aclImdb" / split / label).mkdir(parents=True)
            for i in range(40):
                text = f"{'good' if label == 'pos' else 'bad'} " * 200 + str(i)
                (tmp_path / "aclImdb" / split / label / f"{i}_7.txt").write_text(text)
    pairs = "".join(
        f"{name} has {i} dogs.\t{named}有{i}只狗。\tCC-BY 2.0 (France) Attribution: tatoeba.org #{i} (CK)\n"
        for i in range(30)
        for name, named in (("Tom", "汤姆"), ("Mary", "玛丽"))
    )
    (tmp_path / "cmn.txt").write_text(pairs)
    (tmp_path / "pairs.tsv").write_text(pairs)
    (tmp_path / "few.tsv").write_text("src\ttgt\nthe cat sleeps\t那只猫睡觉\n")
    tagged = "".join(f"see O\nRome B-X\n{i} O\n\n" for i in range(60))
    (tmp_path / "FILE.conll").write_text(tagged)
    (tmp_path / "FILE").write_text("\n".join(f"{i}. {text}" for i in range(20) for text in trained.TEXTS))
    return tmp_path


def _model(family: str, kind: str, folder: Path, chat_template: str | None = None, **sizes: int) -> None:
    words = trained.trained(kind)
    ends = {"eos_token_id": words.token_to_id("</s>")} if kind == "bytes" else {}
    ch.save(ch.build(family, vocab_size=words.get_vocab_size(), **sizes, **ends), folder)
    trained.write(folder, kind, **({"chat_template": chat_template} if chat_template else {}))


def _tuned_models(home: Path) -> None:
    """Models over one base, adapters over it, and what is merged in the pages."""
    base = ch.load(home / "writer")
    ch.save(base, home / "BASE")
    base = ch.load(home / "BASE")
    for seed, name in enumerate(("TUNED", "runs/mine", "runs/fr", "runs/de")):
        tuned = ch.tune(base, Lora(rank=2), seed=seed)
        assert tuned.tuning is not None
        move(tuned.model, tuned.tuning.trained)
        ch.save(tuned, home / name)
    shutil.copytree(home / "writer", home / "stories260k")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    for name in ("llama-base", "math", "code"):
        _model("llama", "bytes", home / name, **sizes)
    (home / "merge.yml").write_text(
        "merge_method: linear\nmodels: [{model: math, parameters: {weight: 0.5}}, "
        "{model: code, parameters: {weight: 0.5}}]\n"
    )
    (home / "rows.tsv").write_text("text\tlabel\nthe cat sleeps\tgood\nthe dog ran\tbad\n")
    (home / "tinystories.txt").write_text(
        "\n\n".join(f"Lily was a girl. {text}" for text in trained.TEXTS * 9)
    )


MODELS = {"predict": "reader", "embed": "reader", "chat": "chatter"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_works_as_printed(
    page: Path, here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, without_font = [], []
    for line in commands(page):
        words = shlex.split(line, comments=True)
        if words[0] in ELSEWHERE:
            continue
        if words[0] != "clearhead":
            done = subprocess.run(["bash", "-c", line], cwd=here, capture_output=True, text=True, check=False)
            code, err = done.returncode, done.stderr
        elif words[1] == "demo":
            continue  # the fixture ran it, as printed; its folder is here
        elif words[1] == "studio":
            code, err = _studio(words[1:])
        else:
            words = [MODELS.get(words[1], "writer") if word == "MODEL" else word for word in words]
            (here / "typed").write_text("hello\n")
            with (here / "typed").open() as typed:
                monkeypatch.setattr(sys, "stdin", typed)
                code = run(words[1:])
            err = capfd.readouterr().err
        expected = next((code for verb, code in EXIT.items() if f"clearhead {verb}" in line), 0)
        if code == 2 and "no font with the Chinese characters" in err:
            without_font.append(line)
        elif code != expected:
            failed.append(f"{line}\n    exit {code}: {err.strip()[-400:]}")
    assert not failed, "\n".join(failed)
    if without_font:  # all others were run
        pytest.skip(f"needs a Chinese font (apt install fonts-noto-cjk): {'; '.join(without_font)}")


def run(words: list[str]) -> int:
    verb = next((verb for verb in SHORTER if " ".join(words).startswith(verb)), "")
    if verb and not {"--list", "--resume", "--help"} & set(words):
        given = {word.partition("=")[0] for word in words if not word.startswith("--train.")}
        for option in SHORTER[verb]:
            if option[0].partition("=")[0] not in given:
                words = [*words, *option]
    threads = torch.get_num_threads()
    try:
        with pytest.raises(SystemExit) as done:
            main(words)
    finally:
        torch.set_num_threads(threads)  # a benchmark takes all there are
    return int(done.value.code or 0)


def _studio(words: list[str]) -> tuple[int, str]:
    """Started as printed, asked for its page, and stopped."""
    words = ["runs/demo" if word == "MODEL" else word for word in words]
    command = [sys.executable, "-m", "clearhead", *words, "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as studio:
        assert studio.stdout is not None and studio.stderr is not None
        try:
            address = next(
                (re.search(r"http://\S+", line) for line in studio.stdout if "http://" in line), None
            )
            if address is None:
                return studio.wait(), studio.stderr.read()
            with urllib.request.urlopen(address[0], timeout=30) as page:
                return (0, "") if page.status == 200 else (page.status, "no page")
        finally:
            studio.terminate()


def test_the_readme_shows_what_the_example_translator_answers() -> None:
    """The comments behind `generate runs/demo` are the answers of the demo, seed 0: the bundled example."""
    from clearhead.serve.registry import EXAMPLE

    shown = re.findall(
        r'^clearhead generate runs/demo "(.*?)" +# (.*)$', (ROOT / "README.md").read_text(), flags=re.M
    )
    assert len(shown) >= 2
    bundle = ch.load(EXAMPLE / "translator")
    assert [(text, bundle.generate(text)) for text, _ in shown] == shown

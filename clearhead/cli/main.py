"""The program `clearhead`: arguments in, exit code out.

A command's module is imported when it is called, and imports torch, NumPy and the library inside its
functions: `--help` and wrong usage are answered in a quarter of a second.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failure, 2 usage or bad input,
3 stopped and resumable, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from cyclopts import App, CycloptsError

from .. import __version__
from ..errors import ClearheadError, one_line
from ..malloc import disable_trim
from .train_help import help_topic, print_topic_help

app = App(
    name="clearhead",
    help="Every Transformer, one clear core: load it, train it, run it fast, and see inside it.",
    version=__version__,
)

# Named by strings, so that a command is imported when it is called and `--help` stays quick.
COMMANDS = {
    "inspect": "Describe a model: a folder, a Hub id, or a named size such as bert-base or gpt3.",
    "plan": "Estimate the cost of a model before it is built: FLOPs, memory, how to split it over devices.",
    "families": "List the model families and the family tree.",
    "demo": "Train a small English-Chinese translator in a minute, use it, look inside it.",
    "train": "Train a recipe on its built-in corpus or on your file.",
    "tune": "Fine-tune a checkpoint on your rows: LoRA, adapters, prefixes, prompts, IA3 or all weights.",
    "merge": "Merge an adapter into its base, several adapters into one, or several models.",
    "eval": "Evaluate any model on a file, or a run on its own held-out rows.",
    "generate": "Generate text: a translation, a summary or a continuation, depending on the model.",
    "chat": "Chat with a model, using its chat template.",
    "predict": "Predict labels, tags, answers or masked words for a text, depending on the model.",
    "embed": "Embed every line of a file, or search for the lines most similar to a text.",
    "certify": "Verify a checkpoint against transformers, layer by layer, and check five invariances.",
    "doctor": "Diagnose this machine, or a training run: what looks wrong, and what to try.",
    "studio": "Open the studio in a browser: see inside your models, generate, train and compare.",
    "learn": "Learn Transformers, in English or Chinese: lessons, experiments, exercises, flash cards.",
    "look": "Look inside a model: attention, heads, layers, positions; as text, picture or HTML page.",
    "bench": "Benchmark against every peer library that is installed, in one run.",
    "data": "Check data before training on it: columns, format, problems, tokens with loss.",
}
for name, purpose in COMMANDS.items():
    function = "evaluate" if name == "eval" else name  # `eval` is taken in Python
    app.command(f"clearhead.cli.{name}:{function}", name=name, help=purpose)


def main(words: list[str] | None = None) -> NoReturn:
    disable_trim()
    words = sys.argv[1:] if words is None else words
    try:
        if (topic := help_topic(words)) is not None:
            print_topic_help(words[0], topic)
            sys.exit(0)
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except (ClearheadError, CycloptsError) as error:
        line = one_line(" ".join(str(error).split()))  # the parser quotes what was typed or piped in
        sys.stderr.write(f"clearhead: {line}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)

"""The program `clearhead`: words in, exit code out.

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

app = App(
    name="clearhead",
    help="Every Transformer, one clear core: load it, train it, run it fast, and see inside it.",
    version=__version__,
)

# Named by strings, so that a command is imported when it is called and `--help` stays quick.
COMMANDS = {
    "inspect": "Say what a model is: a folder, a hub id, or a named size such as bert-base or gpt3.",
    "plan": "Say what a model costs before it is built: operations, memory, how to split it over devices.",
    "families": "List the families, and the tree of their descent.",
    "demo": "The main job in a minute: train a small English-Chinese translator, use it, see where it looks.",
    "train": "Train a recipe on its built-in corpus or on your file.",
    "eval": "Score a run on its own held-out rows, or on any file.",
    "generate": "Generate text: a translation, a summary or a continuation, by what the model is.",
    "chat": "Talk to a model, in the words of its own chat template.",
    "predict": "Labels, tags, answers or missing words for a text, by what the model is.",
    "embed": "Make a vector of every line of a file, or find the lines nearest in meaning.",
    "certify": "Prove a checkpoint: the reference's numbers, and five invariances.",
    "doctor": "Is this machine fit, and how is that run doing? What looks wrong, and what to try.",
    "studio": "Open the studio in a browser: see inside your models, generate, train and compare.",
    "learn": "Learn Transformers, in English or Chinese: lessons, experiments, broken code to mend, cards.",
    "look": "See inside: attention, heads, layers, positions, gradients; as text, picture or page.",
    "bench": "Measure ours beside every peer that is installed, in one run.",
    "data": "Look at data before training on it: columns, shape, faults, and what the loss counts.",
}
for name, purpose in COMMANDS.items():
    function = "evaluate" if name == "eval" else name  # `eval` is taken in Python
    app.command(f"clearhead.cli.{name}:{function}", name=name, help=purpose)


def main(words: list[str] | None = None) -> NoReturn:
    disable_trim()
    try:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except (ClearheadError, CycloptsError) as error:
        line = one_line(" ".join(str(error).split()))  # the parser quotes what was typed or piped in
        sys.stderr.write(f"clearhead: {line}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)

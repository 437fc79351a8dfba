"""`clearhead bench WHAT`: measure ours beside every peer that is installed, in turns, in one run."""

from __future__ import annotations

from cyclopts import App

bench = App(name="bench", help="Measure ours beside every peer that is installed, in one run.")

# Named by strings, so that a bench is imported when it is called.
WHAT = {
    "decode": "Decoding: new tokens a second; float32 and int8, beside transformers and CTranslate2.",
    "train": "Training: real tokens a second, beside Hugging Face's trainer.",
    "attention": "Ways of mixing tokens by length: time, memory, operations, where each begins to pay.",
    "quality": "Ways of mixing tokens: what the same small model learns with each, all else equal.",
    "embed": "Sentence vectors: texts a second; float32 and int8, beside sentence-transformers.",
}
for name, purpose in WHAT.items():
    bench.command(f"clearhead.cli.bench_{name}:{name}", name=name, help=purpose)

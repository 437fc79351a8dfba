"""`clearhead bench WHAT`: compare with every installed peer library, in alternating rounds, in one run."""

from __future__ import annotations

from cyclopts import App

bench = App(name="bench", help="Benchmark against every peer library that is installed, in one run.")

# Named by strings, so that a bench is imported when it is called.
WHAT = {
    "decode": "Decoding: tokens per second in float32 and int8, against transformers and CTranslate2.",
    "train": "Training: tokens per second without padding, against Hugging Face's Trainer.",
    "attention": "Attention kernels by sequence length: time, memory, FLOPs, and where each pays off.",
    "quality": "Attention kernels: what the same small model learns with each, all else equal.",
    "embed": "Sentence embeddings: texts per second in float32 and int8, against sentence-transformers.",
}
for name, purpose in WHAT.items():
    bench.command(f"clearhead.cli.bench_{name}:{name}", name=name, help=purpose)

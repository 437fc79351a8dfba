"""Benchmarks: Clearhead and other libraries take turns at the same work in one run."""

# Each benchmark is a module, imported when it runs: `task` alone is needed to read its options.
__all__ = [
    "attention",
    "decode",
    "drift",
    "embed",
    "products",
    "quality",
    "task",
    "timing",
    "train",
    "tune",
    "tuned_decoding",
]

"""Files of sentence vectors: texts and vectors in, a file out that can be searched again; and back.

.jsonl         one line per text: {"text": ..., "vector": [...]}
.safetensors   `vectors` (N, D), and `texts`: the bytes of a JSON list, so that their size has no limit
.npy           the vectors alone, as NumPy reads them; the texts are beside it, in NAME.texts.json
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, reason

if TYPE_CHECKING:
    from torch import Tensor

    from ..bundle import Bundle

    Write = Callable[[Path, Sequence[str], Tensor], None]
    Read = Callable[[Path], tuple[list[str], Tensor]]

VECTOR_FILES = (".npy", ".safetensors", ".jsonl")
SAME_MODEL = 0.98  # cosine between a saved vector and the model's own; int8 stays above 0.99


def check_out(out: str) -> None:
    """Raise an error for a file that cannot be written, before anything is computed."""
    if Path(out).suffix not in VECTOR_FILES:
        raise InputError(f"--out is {out}; expected a name that ends in {', '.join(VECTOR_FILES)}")
    if not Path(out).absolute().parent.is_dir():
        raise InputError(f"--out is {out}, but there is no folder {Path(out).parent}; create it first")


def write_vectors(out: str, texts: Sequence[str], vectors: Tensor) -> None:
    writers: dict[str, Write] = {
        ".npy": _write_npy,
        ".safetensors": _write_safetensors,
        ".jsonl": _write_jsonl,
    }
    writers[Path(out).suffix](Path(out), texts, vectors)


def read_vectors(file: str) -> tuple[list[str], Tensor]:
    """The texts and their vectors, (N, D)."""
    readers: dict[str, Read] = {".npy": _read_npy, ".safetensors": _read_safetensors, ".jsonl": _read_jsonl}
    path = Path(file)
    if path.suffix not in readers:
        raise InputError(f"--vectors is {file}; expected a name that ends in {', '.join(VECTOR_FILES)}")
    if not path.is_file():
        raise InputError(f"there is no file {file}; clearhead embed MODEL TEXTS --out {path.name} writes one")
    try:
        texts, vectors = readers[path.suffix](path)
    except InputError:
        raise
    except Exception as error:  # of three libraries, for any broken file
        raise InputError(f"{file} holds no vectors that can be read: {reason(error)}") from None
    if vectors.ndim != 2 or not vectors.is_floating_point() or not len(vectors):
        raise InputError(
            f"{file} holds {str(vectors.dtype)[6:]} {tuple(vectors.shape)}; expected (texts, width)"
        )
    if len(texts) != len(vectors):
        raise InputError(f"{file} has {len(vectors):,} vectors and {len(texts):,} texts; write it again")
    return texts, vectors.float()


def check_same_model(bundle: Bundle, file: str, texts: Sequence[str], vectors: Tensor) -> None:
    """Embed one saved text again: a model that gives another vector for it did not make the file."""
    number = next((i for i, text in enumerate(texts) if text.strip()), 0)
    again = bundle.embed(texts[number]).cpu().float()
    if len(again) != vectors.shape[1]:
        raise InputError(
            f"{file} has vectors of {vectors.shape[1]} numbers, this model makes {len(again)}; "
            f"search it with the model that made it"
        )
    if float(bundle.similarity(again, vectors[number])) < SAME_MODEL:
        raise InputError(
            f"{file} was made by another model: its vector of line {number + 1} is not this model's; "
            f"search it with the model that made it"
        )


def json_line(text: str, vector: list[float]) -> str:
    return json.dumps({"text": text, "vector": vector}, ensure_ascii=False) + "\n"


def _write_npy(path: Path, texts: Sequence[str], vectors: Tensor) -> None:
    import numpy as np

    _texts_part(path).write_text(json.dumps(list(texts), ensure_ascii=False), encoding="utf-8")
    with _part_file(path).open("wb") as file:
        np.save(file, vectors.cpu().numpy())
    os.replace(_texts_part(path), _texts_file(path))
    os.replace(_part_file(path), path)


def _read_npy(path: Path) -> tuple[list[str], Tensor]:
    import numpy as np
    import torch

    beside = _texts_file(path)
    if not beside.is_file():
        raise InputError(
            f"the texts of {path} are not beside it, in {beside.name}; embed them again with --out"
        )
    return _texts(beside.read_bytes()), torch.from_numpy(np.load(path))


def _write_safetensors(path: Path, texts: Sequence[str], vectors: Tensor) -> None:
    import torch
    from safetensors.torch import save_file

    data = json.dumps(list(texts), ensure_ascii=False).encode()
    save_file(
        {
            "vectors": vectors.cpu().contiguous(),
            "texts": torch.frombuffer(bytearray(data), dtype=torch.uint8),
        },
        _part_file(path),
    )
    os.replace(_part_file(path), path)


def _read_safetensors(path: Path) -> tuple[list[str], Tensor]:
    from safetensors.torch import load_file

    tensors = load_file(path)
    if not {"vectors", "texts"} <= tensors.keys():
        raise InputError(f"{path} has no texts beside its vectors; write it with clearhead embed --out")
    return _texts(tensors["texts"].numpy().tobytes()), tensors["vectors"]


def _write_jsonl(path: Path, texts: Sequence[str], vectors: Tensor) -> None:
    with _part_file(path).open("w", encoding="utf-8") as file:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            file.write(json_line(text, vector))
    os.replace(_part_file(path), path)


def _read_jsonl(path: Path) -> tuple[list[str], Tensor]:
    import torch

    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as file:
        rows += (json.loads(line) for line in file if line.strip())
    return _texts(json.dumps([row["text"] for row in rows]).encode()), torch.tensor(
        [r["vector"] for r in rows]
    )


def _texts(data: bytes) -> list[str]:
    texts = json.loads(data)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError("the texts of the vectors are not a list of texts; embed them again with --out")
    return texts


def _texts_file(path: Path) -> Path:
    return path.with_suffix(".texts.json")


def _texts_part(path: Path) -> Path:
    return path.with_suffix(".texts.json.part")


def _part_file(path: Path) -> Path:
    """A temporary file in the same folder: the old file stays intact until the new one is complete."""
    return path.with_name(path.name + ".part")

"""Names for the arrays of this package, and the precision they are computed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = NDArray[np.integer[Any]]
Activation: TypeAlias = Callable[[Array], Array]
Order: TypeAlias = Literal["post", "pre"]


def dtypes(*arrays: NDArray[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The dtype of the result, and the dtype to compute in: half precision is too coarse for exp."""
    answer = np.result_type(*arrays, np.float16)  # whole numbers become float64
    return answer, np.result_type(answer, np.float32)

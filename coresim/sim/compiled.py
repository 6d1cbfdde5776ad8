"""numba's one home: compile where it is installed, run the same code uncompiled where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba
except ImportError:  # pragma: no cover - exercised by a test in a subprocess
    numba = None


def compiled(function: Function) -> Function:
    """Compile on first call and keep the machine code on disk; without numba, leave the function as it is."""
    if numba is None:
        return function
    return numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)  # type: ignore[no-any-return]

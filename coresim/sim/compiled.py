"""numba's one home: compile where it is installed, run the same code uncompiled where it is not.

Nothing compiled here allocates, so numba's reference counting is off: it would cost two thirds of the running time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba
except ImportError:  # pragma: no cover - exercised by a test in a subprocess
    numba = None  # type: ignore[assignment]

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


def compiled(function: Function) -> Function:
    """A part of the kernel: compiled into whatever `entry` calls it, without an interface of its own to Python."""
    return _compile(function, no_cpython_wrapper=True)


def entry(function: Function) -> Function:
    """The function that Python calls: compiled on its first call, and its machine code is kept on disk."""
    return _compile(function, cache=True)


def _compile(function: Function, **options: bool) -> Function:
    if numba is None:
        return function
    return numba.njit(**_OPTIONS, **options)(function)  # type: ignore[call-overload,no-any-return]


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether machine code for an entry is at hand: in memory or on disk (without numba none is needed)."""
    if numba is None:
        return True
    dispatcher: Any = function
    return bool(dispatcher.signatures) or any(Path(dispatcher._cache.cache_path).glob(f"*.{function.__name__}-*.nbc"))

"""numba's one home: compile where it is installed, run the same code uncompiled where it is not.

Nothing compiled here allocates, so numba's reference counting is off: it would cost two thirds of the running time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba
except ImportError:  # pragma: no cover - exercised by a test in a subprocess
    numba = None  # type: ignore[assignment]

#: The files whose functions are compiled into the kernel.
_PARTS = ("books", "clocks", "compiled", "kernel", "layout", "line")
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


def compiled(function: Function) -> Function:
    """A part of the kernel: compiled into whatever `entry` calls it, without an interface of its own to Python."""
    return _compile(function, no_cpython_wrapper=True)


def entry(function: Function) -> Function:
    """The function that Python calls: compiled on its first call, and its machine code is kept on disk."""
    dispatcher = _compile(function, cache=True)
    if numba is not None:
        _date(dispatcher)
    return dispatcher


def _compile(function: Function, **options: bool) -> Function:
    if numba is None:
        return function
    return numba.njit(**_OPTIONS, **options)(function)  # type: ignore[call-overload,no-any-return]


def _date(dispatcher: Any) -> None:
    """Date machine code on disk by all files that go into it: numba itself looks at the entry's own file alone."""
    folder = Path(__file__).parent
    digest = hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in _PARTS)).hexdigest()
    cache_file = dispatcher._cache._cache_file
    cache_file._source_stamp = (cache_file._source_stamp, digest)


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether machine code for an entry is at hand: in memory or on disk (without numba none is needed)."""
    if numba is None:
        return True
    dispatcher: Any = function
    return bool(dispatcher.signatures) or bool(dispatcher._cache._cache_file._load_index())

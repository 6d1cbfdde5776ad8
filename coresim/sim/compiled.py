"""numba's one home: compile where it is installed, run the same code uncompiled where it is not.

Once compiled, machine code lies on disk as an object file, which llvmlite (the part of numba that emits it) loads by
itself: importing numba and filling its tables would take longer than the simulation.

Nothing compiled here allocates, so numba's reference counting is off: it would cost two thirds of the running time.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])
Code = Callable[[NDArray[Any], NDArray[Any]], int]

#: The files whose functions are compiled.
_SOURCES = (
    "books", "clocks", "compiled", "draws", "items", "kernel", "layout", "line", "recurrence", "servers", "trainer",
)  # fmt: skip
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
#: Of the parts, which are called by nothing but each other.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True}
_parts: set[Callable[..., Any]] = set()
_lock = Lock()


def compiled(function: Function) -> Function:
    """A part of what an `entry` is compiled from; by itself it stays the Python function that it is."""
    _parts.add(function)
    return function


class Entry:
    """What Python calls: ``(counts, times) -> int``, an int64 and a float64 array, without the interpreter's lock.

    Machine code is loaded from disk at the first call, or made; without numba the function itself runs. ``plain`` is
    the function, for times that are no floats.
    """

    def __init__(self, plain: Callable[[Any, Any], int]) -> None:
        self.plain = compiled(plain)
        self.__doc__ = plain.__doc__
        self._code: Code | None = None

    def __call__(self, counts: NDArray[Any], times: NDArray[Any]) -> int:
        """Run it."""
        if self._code is None:
            with _lock:
                self._code = self._code or _code(self.plain)
        return self._code(counts, times)

    def at_hand(self) -> bool:
        """Whether there is nothing left to compile: machine code in memory or on disk, or no numba to make it."""
        return self._code is not None or not _has_numba() or _find(self.plain) is not None


def entry(plain: Callable[[Any, Any], int]) -> Entry:
    """The function that Python calls: compiled on its first call, and its machine code is kept on disk."""
    return Entry(plain)


def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _code(plain: Callable[[Any, Any], int]) -> Code:
    if not _has_numba():
        return plain
    found = _find(plain)
    if found:
        with suppress(FileNotFoundError):  # a newer version has removed it just now
            return _load(found.read_bytes())
    try:
        code = _compile(plain)
    except AttributeError:  # a numba whose inside is another: it still compiles, but nothing is kept
        return _dispatched(plain)
    _keep(plain, code)
    return _load(code)


# On disk


@cache
def _folders() -> tuple[Path, ...]:
    """Where machine code may lie: beside the source, like Python's own, or where that cannot be written to, with the
    user's caches.
    """
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(__file__).parent / "__pycache__", Path(user) / "coresim"


@cache
def _date() -> tuple[str, str]:
    """Dates machine code by all that goes into it: who compiles and what processor for, and the sources.

    Every llvmlite belongs to one numba.
    """
    import llvmlite.binding as llvm  # noqa: PLC0415 - see the module's text

    folder = Path(__file__).parent
    sources = [(folder / f"{name}.py").read_bytes() for name in _SOURCES]
    about = (sys.version, llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    machine = [text.encode() for text in (*about, str(sys.modules["llvmlite"].__version__))]
    first, second = (hashlib.sha256(b"\0".join(parts)).hexdigest()[:32] for parts in (machine, sources))
    return first, second


def _name(plain: Callable[..., Any], sources: str = "") -> str:
    machine, here = _date()
    return f"{plain.__module__}.{plain.__name__}.{machine}.{sources or here}.o"


def _find(plain: Callable[..., Any]) -> Path | None:
    return next((path for folder in _folders() if (path := folder / _name(plain)).is_file()), None)


def _keep(plain: Callable[..., Any], code: bytes) -> None:
    """Write it whole or not at all, in the first folder that can be written to; else it is made anew each time.

    What was made there of other sources goes; what another machine or another Python made may still serve it.
    """
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{_name(plain)}.{os.getpid()}"
            part.write_bytes(code)
            part.replace(folder / _name(plain))
            for other in set(folder.glob(_name(plain, "*"))) - {folder / _name(plain)}:
                with suppress(OSError):
                    other.unlink()
            return
        except OSError:
            continue


@cache
def _engine() -> Any:
    """One home in memory for all machine code of this process; it must outlive every call."""
    import llvmlite.binding as llvm  # noqa: PLC0415 - see the module's text

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _load(code: bytes) -> Code:
    """The function in an object file that follows its name and a line break."""
    import llvmlite.binding as llvm  # noqa: PLC0415 - see the module's text

    name, _, content = code.partition(b"\n")
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    # numba's way to call a function: where the result goes, where an exception would, the arguments; it tells whether
    # there was one. A call through ctypes gives the interpreter's lock away.
    convention = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)
    run = convention(engine.get_function_address(name.decode()))

    def call(counts: NDArray[Any], times: NDArray[Any]) -> int:
        if counts.dtype != np.int64 or times.dtype != np.float64 or not (counts.flags.forc and times.flags.forc):
            raise TypeError(f"arrays of int64 and float64 are needed, not of {counts.dtype} and {times.dtype}")
        result, raised = ctypes.c_int64(), ctypes.c_void_p()
        if run(ctypes.addressof(result), ctypes.addressof(raised), counts.ctypes.data, times.ctypes.data):
            raise RuntimeError(f"{name.decode()}: failed")
        return result.value

    return call


# Compiling


def _compile(plain: Callable[[Any, Any], int]) -> bytes:
    """Name, line break, object file: numba's function of the addresses of the counts and the times.

    Addresses and not arrays: an index is then taken as it is, without the test whether it counts from the end. numba's
    wrappers for Python and C are left out: they need numba.
    """
    import numba  # noqa: PLC0415 - see the module's text

    types: Any = numba.types
    arguments = types.CPointer(types.int64), types.CPointer(types.float64)
    dispatcher = _bound(plain, numba, {})
    dispatcher.compile(arguments)
    made = dispatcher.overloads[arguments]
    _, _, (content, _) = made.library.serialize_using_object_code()
    code: bytes = made.fndesc.llvm_func_name.encode() + b"\n" + content
    return code


def _dispatched(plain: Callable[[Any, Any], int]) -> Code:
    """The function as numba itself calls it, compiled in this process."""
    import numba  # noqa: PLC0415 - see the module's text

    code: Code = numba.njit(**_OPTIONS)(_bound(plain, numba, {}).py_func)
    return code


def _bound(function: Callable[..., Any], numba: Any, done: dict[Any, Any]) -> Any:
    """A part as numba's function, bound to such parts; those of another module are reached through a twin of it."""
    if function not in done:
        scope: dict[str, Any] = dict(vars(sys.modules[function.__module__]))
        twin = FunctionType(function.__code__, scope, function.__name__)
        done[function] = numba.njit(**_OPTIONS, **_INNER)(twin)
        for name in function.__code__.co_names:
            if name in scope:
                scope[name] = _twin(scope[name], numba, done)
    return done[function]


def _twin(value: Any, numba: Any, done: dict[Any, Any]) -> Any:
    """The value that a part sees in place of this one."""
    if isinstance(value, FunctionType) and value in _parts:
        return _bound(value, numba, done)
    if isinstance(value, ModuleType) and value.__name__.startswith(__package__):
        if value not in done:
            done[value] = ModuleType(value.__name__)
            vars(done[value]).update({name: _twin(item, numba, done) for name, item in vars(value).items()})
        return done[value]
    return value

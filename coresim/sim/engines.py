"""The simulation engines by name, each imported when it is chosen: SimPy is slow to import."""

from __future__ import annotations

from importlib import import_module

from coresim.errors import InputError
from coresim.sim.estimate import Engine


def engine_named(name: str) -> Engine:
    """The engine of this name: ``fast``, or ``reference``, the readable definition.

    Raises:
        InputError: no engine is called so.
    """
    if name not in ("fast", "reference"):
        raise InputError(f"engine {name!r}: use fast or reference")
    engine: Engine = import_module(f"coresim.sim.{name}").simulate
    return engine

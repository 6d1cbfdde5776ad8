"""The simulation engines by name, each imported when it is chosen: SimPy is slow to import."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from coresim.errors import InputError
from coresim.sim.estimate import Engine


def engine_named(name: str, tell: Callable[[str], object] = lambda text: None) -> Engine:
    """The engine of this name: ``fast``, or ``reference``, the readable definition.

    ``tell`` is called if the fast one is not compiled.

    Raises:
        InputError: no engine is called so.
    """
    if name not in ("fast", "reference"):
        raise InputError(f"engine {name!r}: use fast or reference")
    module = import_module(f"coresim.sim.{name}")
    if slow := getattr(module, "SLOW", ""):
        tell(slow)
    engine: Engine = module.simulate
    return engine

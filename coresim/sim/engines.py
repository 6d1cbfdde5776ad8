"""The simulation engines by name, each imported when it is chosen: SimPy is slow to import."""

from __future__ import annotations

from coresim.errors import InputError
from coresim.sim.estimate import Engine


def engine_named(name: str) -> Engine:
    """The engine of this name: ``fast``, or ``reference``, the readable definition.

    Raises:
        InputError: no engine is called so.
    """
    if name == "fast":
        from coresim.sim.fast import simulate as fast  # noqa: PLC0415

        return fast
    if name == "reference":
        from coresim.sim.reference import simulate as reference  # noqa: PLC0415

        return reference
    raise InputError(f"engine {name!r}: use fast or reference")

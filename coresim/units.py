"""Quantities with units at the boundary; SI base units (seconds, bytes) inside."""

from __future__ import annotations

import math
import re

from coresim.errors import InputError

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf)\s*([a-zA-Zµ]*)\s*")


def parse_duration(text: object, where: str) -> float:
    """Seconds from a text such as ``"5.2 ms"``.

    Raises:
        InputError: no unit, an unknown unit, or a value that is negative or not finite. The message starts
            with ``where``, the place that the user can edit.
    """
    if not isinstance(text, str):
        raise InputError(f'{where} = {text!r}: unit missing; write it as text with a unit, such as "{text} ms"')
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InputError(f'{where} = {text!r}: not a time; write a number and a unit, such as "5.2 ms"')
    number, unit = match.groups()
    if not unit:
        raise InputError(f'{where} = {text!r}: unit missing; write "{number} ms" or "{number} s"')
    if unit not in SECONDS:
        raise InputError(f"{where} = {text!r}: unknown unit {unit!r}; use one of {', '.join(SECONDS)}")
    value = float(number) * SECONDS[unit]
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where} = {text!r}: a time must be finite and not negative")
    return value


def format_duration(seconds: float) -> str:
    """A duration for people, with three significant digits: ``98 ms``, ``1.28 s``, ``2.1 h``."""
    for unit, size, limit in (("ns", 1e-9, 1e-6), ("µs", 1e-6, 1e-3), ("ms", 1e-3, 1.0), ("s", 1.0, 600.0)):
        if abs(seconds) < limit:
            return f"{seconds / size:.3g} {unit}"
    if abs(seconds) < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def format_bytes(count: float) -> str:
    """A size for people, in decimal multiples: ``154 MB``."""
    for unit, size in (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if abs(count) < 1000 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e12:.3g} TB"

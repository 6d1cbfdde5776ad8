"""Quantities with units at the boundary; SI base units (seconds, bytes) inside."""

from __future__ import annotations

import math
import re

from coresim.errors import InputError

#: A number that is read is 0 or of a size between these, so that what is computed from a few of them stays finite.
SMALLEST, LARGEST = 1e-100, 1e18
#: A time that is read is 0 or between a picosecond and 32 years.
SHORTEST_S, LONGEST_S = 1e-12, 1e9
#: Characters of a value in a message.
SHORT = 80
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
#: Units of a time for which somebody measures or waits.
LONG = ("s", "min")
#: Control characters of ASCII and Latin-1 but for the end of a line, and those that change the direction of writing.
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf)\s*([a-zA-Zµ]*)\s*")


def parse_duration(text: object, where: str, units: tuple[str, str] = ("ms", "s")) -> float:
    """Seconds from a text such as ``"5.2 ms"``; ``units`` are those that a message proposes.

    Raises:
        InputError: no unit, an unknown unit, or a value that is negative, not finite or out of bounds. The message
            starts with ``where``, the place that the user can edit.
    """
    shown = f"{where} = {short(text)}"
    if not isinstance(text, str):
        example = short(text) if isinstance(text, int | float) else "98"
        raise InputError(f'{shown}: unit missing; write it as text with a unit, such as "{example} {units[0]}"')
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InputError(f'{shown}: not a time; write a number and a unit, such as "5.2 {units[0]}"')
    number, unit = match.groups()
    if not unit:
        meant = " or ".join(f'"{number[:SHORT]} {unit}"' for unit in units)
        raise InputError(f"{shown}: unit missing; write {meant}")
    if unit not in SECONDS:
        raise InputError(f"{shown}: unknown unit {short(unit)}; use one of {', '.join(SECONDS)}")
    value = float(number) * SECONDS[unit]
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{shown}: a time must be finite and not negative")
    if value and not SHORTEST_S <= value <= LONGEST_S:
        raise InputError(f"{shown}: a time is 0 or from {SHORTEST_S:g} s to {LONGEST_S:g} s; check the unit")
    return value


def in_bounds(number: float) -> bool:
    """Whether a number that was read can be computed with: 0, or of a size from `SMALLEST` to `LARGEST`."""
    return not number or SMALLEST <= abs(number) <= LARGEST


def short(value: object) -> str:
    """A value for a message of one line; a long one is shortened."""
    if isinstance(value, int) and abs(value) > 10**20:
        return f"{'minus ' if value < 0 else ''}an integer of more than 20 digits"
    text = repr(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}... ({len(text)} characters)"


def visible(text: str) -> str:
    """The text with characters that would steer a terminal, or turn its letters round, as escapes such as ``\\x1b``."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


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

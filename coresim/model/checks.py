"""Checks of a description, which build a message only when a check fails; and lookups in its tables."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from coresim.errors import InputError


def kept_hash(description: Any) -> int:
    """The hash of a frozen description, kept in it: a search looks them up very often, some of thousands of values."""
    try:
        return description._hash  # type: ignore[no-any-return]
    except AttributeError:
        # Of the fields alone: another thread may keep the hash at this moment.
        values = [getattr(description, field.name) for field in fields(description)]
        found = vars(description)["_hash"] = hash(tuple(values))
        return found


def are_positive(table: tuple[Any, ...]) -> bool:
    """Whether there is a number, and all of them are finite and positive."""
    return bool(table) and bool not in map(type, table) and all(map(math.isfinite, table)) and min(table) > 0


def is_finite(number: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    return not isinstance(number, bool) and math.isfinite(number)


def check(holds: bool, message: str, *parts: object) -> None:
    """InputError with the message, unless it holds."""
    # The message is put together only where it is needed: a sweep makes very many descriptions.
    if not holds:
        raise InputError(message.format(*parts) if parts else message)


def check_count(value: object, what: str, *parts: object, least: int = 1) -> None:
    """InputError unless it is a whole number of at least ``least``."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    check(good, what + " = {!r}: a whole number of at least {} is needed", *parts, value, least)


def at(table: tuple[Any, ...], position: Any) -> Any:
    """A table at a fractional position, linear between its points and constant beyond its ends."""
    if position <= 0:
        return table[0]
    if position >= len(table) - 1:
        return table[-1]
    low = math.floor(position)
    if low == position:
        return table[low]
    return table[low] + (position - low) * (table[low + 1] - table[low])

"""Warnings: reasons to trust a measurement or a fact of a host less."""

from __future__ import annotations

from typing import NamedTuple


class HostWarning(NamedTuple):
    """What misleads or slows, the value seen, and the remedy."""

    what: str
    value: str
    remedy: str

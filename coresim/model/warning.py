"""Why something that was measured or read of a host is to be trusted less."""

from __future__ import annotations

from typing import NamedTuple


class HostWarning(NamedTuple):
    """What misleads or slows, the value seen, and the remedy."""

    what: str
    value: str
    remedy: str

"""What the scripts of this folder share to write their pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows))


def met(holds: bool) -> str:
    """Whether an aim is met, in words."""
    return "met" if holds else "**not met**"

"""What a report consists of, whatever it is printed as: sections of lines, tables and charts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coresim.advise.surface import Surface

#: A number as the tables write it, perhaps with an interval or a unit; what stands where there is none.
_NUMBER = re.compile(r"(\?|none( \(\d+\))?|[-+±]?[\d.,]+( ?(%|[nµm]?s|min|h))?( \[.*\])?|)")


@dataclass(frozen=True)
class Table:
    """Texts in rows; every cell is plain text, escaped by whoever prints it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers: they are set flush right."""
        columns = ([row[index] for row in self.rows] for index in range(len(self.columns)))
        return tuple(all(_NUMBER.fullmatch(cell) for cell in column) for column in columns)


@dataclass(frozen=True)
class Chart:
    """A figure that is drawn when it is printed; ``draw`` takes an empty matplotlib figure.

    ``height`` is in inches, for a width of 5; ``caption`` says in words what it shows.
    """

    title: str
    caption: str
    draw: Callable[[Any], object]
    height: float = 3.4


@dataclass(frozen=True)
class Section:
    """One part of a report under its own heading."""

    title: str
    lines: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole report: the answer on the first screen (``subject``, ``headline``, ``facts``), then the evidence.

    ``surface`` simulates what a reader can slide along, where the format has sliders.
    """

    title: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    subject: tuple[tuple[str, str], ...] = ()
    surface: Callable[[], Surface | None] | None = None

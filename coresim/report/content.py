"""The content of an answer, the same for every format: sections of a few kinds of blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coresim.advise.surface import Surface

#: A number as the tables write it, perhaps with an interval or a unit; what stands where there is none.
_NUMBER = re.compile(r"(\?|none( \(\d+\))?|[-+±]?[\d.,]+( ?(%|[nµm]?s|min|h|[kMG]?B(/s)?))?( \[.*\])?|)")


@dataclass(frozen=True)
class Paragraph:
    """Sentences; the renderer breaks the lines."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list; ``marked``: with bullets. Without bullets, continuation lines are indented."""

    lines: tuple[str, ...]
    marked: bool = True


@dataclass(frozen=True)
class Facts:
    """Names, each with its value."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Verbatim:
    """Lines as they stand, to be copied."""

    text: str


@dataclass(frozen=True)
class Table:
    """Texts in rows; every cell is plain text, escaped by the renderer.

    ``bars``: a share for each row, which a terminal draws behind the row; other formats have a chart of the same.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""
    bars: tuple[float, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers: they are set flush right."""
        columns = ([row[index] for row in self.rows] for index in range(len(self.columns)))
        return tuple(all(_NUMBER.fullmatch(cell) for cell in column) for column in columns)


@dataclass(frozen=True)
class Chart:
    """A figure that is drawn when the report is written; ``draw`` takes an empty matplotlib figure.

    ``height`` is in inches, for a width of 5; ``caption`` describes it in words. Text formats leave charts out.
    """

    title: str
    caption: str
    draw: Callable[[Any], object]
    height: float = 3.4


Block = Paragraph | Items | Facts | Verbatim | Table | Chart


@dataclass(frozen=True)
class Section:
    """One part of an answer under its own heading; no heading if ``title`` is empty."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def words(self) -> str:
        """The text of its lists as running text, for a fact beside others."""
        return " ".join(line for block in self.blocks if isinstance(block, Items) for line in block.lines)


def statements(lines: Iterable[str]) -> Section:
    """Sentences that need no heading, each on a line of its own."""
    return Section("", (Items(tuple(lines), marked=False),))


@dataclass(frozen=True)
class Report:
    """A whole answer: the first screen (``subject``, ``headline``, ``facts``), then the evidence.

    ``surface`` simulates the table behind the sliders, if the format has sliders.
    """

    title: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    subject: tuple[tuple[str, str], ...] = ()
    surface: Callable[[], Surface | None] | None = None

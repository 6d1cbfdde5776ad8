"""What an answer consists of, whatever it is shown as: sections of a few kinds of blocks."""

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
    """Sentences, broken wherever a line ends."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list; ``marked``: with a sign before each line, else only what a line goes on with stands further right."""

    lines: tuple[str, ...]
    marked: bool = True


@dataclass(frozen=True)
class Facts:
    """Names, each with what is said of it."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Verbatim:
    """Lines as they stand, to be copied."""

    text: str


@dataclass(frozen=True)
class Table:
    """Texts in rows; every cell is plain text, escaped by the renderer.

    ``bars``: a share for each row, which a terminal draws behind it; other forms have a chart of the same.
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
    """A figure that is drawn when it is printed; ``draw`` takes an empty matplotlib figure.

    ``height`` is in inches, for a width of 5; ``caption`` says in words what it shows. Text shows no charts.
    """

    title: str
    caption: str
    draw: Callable[[Any], object]
    height: float = 3.4


Block = Paragraph | Items | Facts | Verbatim | Table | Chart


@dataclass(frozen=True)
class Section:
    """One part of an answer under its own heading, or under none where ``title`` is empty."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def words(self) -> str:
        """What its lists say as running text, for a fact beside others."""
        return " ".join(line for block in self.blocks if isinstance(block, Items) for line in block.lines)


def statements(lines: Iterable[str]) -> Section:
    """Sentences that need no heading, each on a line of its own."""
    return Section("", (Items(tuple(lines), marked=False),))


@dataclass(frozen=True)
class Report:
    """A whole answer: what stands on the first screen (``subject``, ``headline``, ``facts``), then the evidence.

    ``surface`` simulates what a reader can slide along, where the format has sliders.
    """

    title: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    subject: tuple[tuple[str, str], ...] = ()
    surface: Callable[[], Surface | None] | None = None

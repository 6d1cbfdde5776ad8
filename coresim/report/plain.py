"""Sections and tables as plain text: a terminal's, and the body text of a PDF."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from coresim.report.content import Section, Table
from coresim.report.words import wrapped


def sections_text(sections: Iterable[Section]) -> str:
    """Sections with a blank line between them; a section without a title has its lines flush left."""
    return "\n\n".join(filter(None, map(_section, sections)))


def _section(section: Section) -> str:
    indent = ("  - ", "    ") if section.title else ("", "  ")
    parts = ["\n".join([*filter(None, [section.title]), *(wrapped(line, *indent) for line in section.lines)])]
    parts += [table_text(table) for table in section.tables]
    return ("\n\n" if section.lines and section.tables else "\n").join(filter(None, parts))


def table_text(table: Table) -> str:
    """A table below its title, and its note behind it."""
    indent = "  " if table.title else ""
    lines = [*filter(None, [table.title]), *(indent + line for line in table_lines(table))]
    return "\n".join([*lines, *(wrapped(line) for line in filter(None, table.note.split("\n")))])


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """Columns two blanks apart, numbers flush right; the last column goes on below where ``width`` ends."""
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
    if width is not None:
        widths[-1] = min(widths[-1], max(20, width - sum(widths[:-1]) - 2 * len(widths)))
    lines = []
    for row in (table.columns, *table.rows):
        cells = [_cell(*parts) for parts in zip(row, widths, table.numeric, strict=True)]
        start = "  ".join([*cells[:-1], ""])
        first, *more = textwrap.wrap(row[-1], widths[-1]) or [""]
        lines += [(start + (first if more else cells[-1])).rstrip(), *(" " * len(start) + line for line in more)]
    return lines


def _cell(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)

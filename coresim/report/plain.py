"""An answer as plain text: a terminal's, and the body text of a PDF."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from coresim.report.content import Block, Chart, Facts, Items, Paragraph, Section, Table, Verbatim
from coresim.report.words import WIDTH, wrapped


def answer_lines(headline: str, *sections: Section) -> str:
    """The headline as it stands, then the sections; charts are left out."""
    told = (section for section in sections if any(map(_is_read, section.blocks)))
    return "\n\n".join(filter(None, [headline, *map(section_text, told)]))


def _is_read(block: Block) -> bool:
    return not isinstance(block, Chart) and (not isinstance(block, Items) or bool(block.lines))


def section_text(section: Section) -> str:
    """The section's title with its blocks indented below it; without a title, nothing is indented."""
    lines: list[str] = []
    indent = "  " if section.title else ""
    for block in section.blocks:
        lines += [""] if lines and isinstance(block, Table) else []
        lines += [(indent + line).rstrip() for line in block_lines(block, WIDTH - len(indent), wide=True)]
    return "\n".join([*filter(None, [section.title]), *lines])


def block_lines(block: Block, width: int, wide: bool = False) -> Iterator[str]:
    """The lines of a block, no longer than ``width``; verbatim lines, and tables with ``wide``, may be longer."""
    match block:
        case Paragraph(text):
            yield from wrapped(text, "", "", width).splitlines()
        case Items(lines, marked):
            for line in lines:
                yield from wrapped(line, "- " if marked else "", "  ", width).splitlines()
        case Facts(pairs):
            yield from facts_lines(pairs, width)
        case Verbatim(text):
            yield from text.splitlines()
        case Table(title=title, note=note):
            yield from filter(None, [title])
            yield from table_lines(block, None if wide else width)
            yield from wrapped(note, "", "", width).splitlines()


def facts_lines(pairs: tuple[tuple[str, str], ...], width: int) -> list[str]:
    """Each name with its value beside it; the values are aligned."""
    size = max((len(name) for name, _ in pairs), default=0) + 2
    parts = (wrapped(value, f"{name:<{size}}", " " * size, width) for name, value in pairs)
    return "\n".join(parts).splitlines()


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """Columns two blanks apart, numbers flush right; the last column goes on below where ``width`` ends."""
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
    if width is not None:
        widths[-1] = min(widths[-1], max(20, width - sum(widths[:-1]) - 2 * len(widths)))
    lines = []
    for row, share in zip((table.columns, *table.rows), (0.0, *table.bars, *[0.0] * len(table.rows)), strict=False):
        parts = zip(row, widths, table.numeric, strict=True)
        cells = [text.rjust(size) if right else text.ljust(size) for text, size, right in parts]
        start = "  ".join([*cells[:-1], ""])
        first, *more = textwrap.wrap(row[-1], widths[-1]) or [""]
        bar = "  " + "#" * round(40 * share) if width is None else ""
        lines += [(start + (first if more else cells[-1]) + bar).rstrip(), *(" " * len(start) + line for line in more)]
    return lines

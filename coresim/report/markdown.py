"""A report as Markdown: the same texts and tables as in other formats, without the charts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from coresim.report.content import Block, Chart, Facts, Items, Paragraph, Report, Table, Verbatim
from coresim.units import visible

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&$])")


def report_markdown(report: Report) -> str:
    """The report; every character with a meaning in Markdown is escaped."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield from (f"# {_plain(report.title)}", "")
    yield from (f"{_plain(name)}: {_plain(value)}  " for name, value in report.subject)
    yield from ("", f"**{_plain(report.headline)}**", "")
    yield from _table(Table(("", "answer"), report.facts))
    for section in report.sections:
        shown = [line for block in section.blocks for line in ("", *_block(block)) if not isinstance(block, Chart)]
        title = ("", f"## {_plain(section.title)}") if section.title else ()
        yield from (*title, *shown) if shown else ()


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield _plain(text)
        case Items(lines, marked):
            # Two blanks at the end keep a line apart from the next one.
            yield from (f"- {_plain(line)}" if marked else f"{_plain(line)}  " for line in lines)
        case Facts(pairs):
            yield from _table(Table(("", ""), pairs))
        case Verbatim(text):
            yield from ("```", *text.splitlines(), "```")
        case Table(title=title, note=note):
            yield from [f"**{_plain(title)}**", ""] if title else []
            yield from _table(block)
            yield from ["", _plain(note)] if note else []


def _table(table: Table) -> Iterator[str]:
    rule = tuple("---:" if number else "---" for number in table.numeric)
    for row in (table.columns, rule, *table.rows):
        yield "| " + " | ".join(map(_plain, row)) + " |"


def _plain(text: str) -> str:
    """One line of text that Markdown shows as it stands."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))

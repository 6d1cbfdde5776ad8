"""Charts of a report as SVG for HTML, and the pages of its PDF: drawn by matplotlib without a display."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterator

import matplotlib as mpl
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from coresim.report.content import Chart, Report, Section, Table

WIDTH = 5.0
#: Text stays text: it can be read aloud, searched and copied.
STYLE = {
    "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif", "axes.spines.top": False,
    "axes.spines.right": False, "axes.titlesize": 10, "legend.fontsize": 8, "pdf.fonttype": 42,
}  # fmt: skip
#: An A4 page in inches, its margin, and the lines of text that it takes.
PAGE, MARGIN, LINES, COLUMNS = (8.27, 11.69), 0.75, 64, 96
#: Height of a line of text on a page, inches.
LINE = 0.155


def svg_of(chart: Chart, salt: str) -> str:
    """The chart as an ``<svg>`` element; ``salt`` keeps its ids apart from those of other charts of a page."""
    stream = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}):
        _figure(chart).savefig(stream, format="svg", metadata={"Date": None})
    found = stream.getvalue()
    # What comes before the element, and the metadata that name matplotlib's site, are of no use inside of HTML.
    found = re.sub(r"<metadata>.*?</metadata>", "", found[found.index("<svg") :], flags=re.DOTALL)
    return re.sub(r'\bid="(?=figure|axes|patch|line|text|legend|matplotlib|xtick|ytick|Fill)', f'id="{salt}.', found)


def report_pdf(report: Report) -> bytes:
    """The report as pages: text with its tables first, then each section's charts."""
    stream = io.BytesIO()
    with mpl.rc_context(STYLE), PdfPages(stream, metadata={"Title": report.title, "CreationDate": None}) as pages:
        for page in _text_pages(_cover(report)):
            pages.savefig(page)
        for section in report.sections:
            for page in _section_pages(section):
                pages.savefig(page)
    return stream.getvalue()


def _figure(chart: Chart) -> Figure:
    figure = Figure(figsize=(WIDTH, chart.height), layout="constrained")
    chart.draw(figure)
    return figure


def _cover(report: Report) -> list[str]:
    width = max(len(name) for name, _ in report.facts) + 2
    lines = [report.title, "", *textwrap.wrap(report.headline.upper(), COLUMNS), ""]
    for name, value in report.facts:
        lines += textwrap.wrap(f"{name:<{width}}{value}", COLUMNS, subsequent_indent=" " * width)
    return lines


def _section_pages(section: Section) -> Iterator[Figure]:
    """The charts of a section, each on a page of its own, and its text, which begins beneath the last of them."""
    lines = _section_lines(section)
    heading: list[str] = [section.title.upper(), ""]
    for chart in section.charts:
        last = chart is section.charts[-1]
        page = _chart_page(chart, heading)
        top = 1 + 1.5 * chart.height + 0.4
        caption = textwrap.wrap(chart.caption, COLUMNS)
        room = LINES - math.ceil(top / LINE) - len(caption) - 1
        beneath = lines[:room] if last else []
        _write(page, [*caption, "", *beneath], MARGIN + top)
        lines = lines[len(beneath) :]
        yield page
        heading = [section.title.upper() + " (continued)", ""]
    if lines:
        yield from _text_pages([*heading, *lines])


def _section_lines(section: Section) -> list[str]:
    lines = []
    for line in section.lines:
        lines += textwrap.wrap(line, COLUMNS, initial_indent="- ", subsequent_indent="  ")
    for table in section.tables:
        lines += ["", *_table_lines(table)]
    return lines


def _chart_page(chart: Chart, heading: list[str]) -> Figure:
    """A page with the heading, and the chart below it in the page's width."""
    width, height = PAGE
    share = 1.5 * chart.height / height
    rect = (MARGIN / width, 1 - (MARGIN + 1) / height - share + 0.05, 1 - 2 * MARGIN / width, share)
    page = Figure(figsize=PAGE, layout=ConstrainedLayoutEngine(rect=rect))
    chart.draw(page)
    _write(page, heading, MARGIN)
    return page


def _table_lines(table: Table) -> list[str]:
    """A table in columns; the last one is wrapped where the page ends."""
    widths = [max(len(cell) for cell in column) for column in zip(table.columns, *table.rows, strict=True)]
    widths[-1] = max(20, min(widths[-1], COLUMNS - sum(widths[:-1]) - 2 * len(widths)))
    lines = [table.title] if table.title else []
    for row in (table.columns, *table.rows):
        last = textwrap.wrap(row[-1], widths[-1]) or [""]
        cells = [_cell(text, width, right) for text, width, right in zip(row, widths, table.numeric, strict=True)][:-1]
        start = "  ".join([*cells, ""])
        lines += [start + last[0], *(" " * len(start) + more for more in last[1:])]
    return [*lines, *textwrap.wrap(table.note, COLUMNS)]


def _cell(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _text_pages(lines: list[str]) -> Iterator[Figure]:
    for first in range(0, len(lines), LINES):
        page = Figure(figsize=PAGE)
        _write(page, lines[first : first + LINES], MARGIN)
        yield page


def _write(page: Figure, lines: list[str], top: float) -> None:
    """Lines of text from ``top`` inches below the page's upper edge on; "$" in them is no formula."""
    text = page.text(MARGIN / PAGE[0], 1 - top / PAGE[1], "\n".join(lines), va="top", family="monospace",
                     fontsize=8, linespacing=1.35, parse_math=False)  # fmt: skip
    text.set_in_layout(False)

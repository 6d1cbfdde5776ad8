"""A report as a PDF: text, tables and charts set one below the other on A4 pages by matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from coresim.report.charts import STYLE, WIDTH, pixels_of, style
from coresim.report.content import Chart, Report, Section, Table
from coresim.report.plain import block_lines, facts_lines

#: Width and height of a page, its margin and a line of body text, inches; characters in a line.
PAGE, MARGIN, LINE, COLUMNS = (8.27, 11.69), 0.75, 0.155, 96
#: Charts are printed a little larger than drawn.
SCALE = 1.15


def report_pdf(report: Report) -> bytes:
    """The content of the PDF file."""
    flow = _Flow()
    flow.text([report.title], 9, "grey")
    flow.text(textwrap.wrap(" | ".join(f"{name}: {value}" for name, value in report.subject), COLUMNS), colour="grey")
    flow.text(textwrap.wrap(report.headline, 40), 22, "#0072B2", "bold")
    flow.gap()
    flow.text(facts_lines(report.facts, COLUMNS), space=1.25)
    for section in report.sections:
        _section(flow, section)
    stream = io.BytesIO()
    with style(STYLE), PdfPages(stream, metadata={"Title": report.title, "CreationDate": None}) as pages:
        for page in flow.pages:
            pages.savefig(page)
    return stream.getvalue()


class _Flow:
    """Pages that are filled from the top; ``left`` is the free height of the last page, inches."""

    def __init__(self) -> None:
        self.pages: list[Figure] = []
        self.left = 0.0

    def room(self, height: float) -> Figure:
        """A page with so much free height: the last one, or a new one."""
        if height > self.left:
            self.pages.append(Figure(figsize=PAGE))
            self.left = PAGE[1] - 2 * MARGIN
        return self.pages[-1]

    def gap(self) -> None:
        self.left -= 1.5 * LINE

    def text(
        self, lines: Iterable[str], size: float = 8, colour: str = "black", weight: str = "normal", space: float = 1.0
    ) -> None:
        """Lines as they stand ("$" is no formula), in a font of fixed width where they are body text."""
        height = LINE * size / 8 * space
        family = "monospace" if size == 8 else "sans-serif"
        for line in lines:
            page = self.room(height)
            place = (MARGIN / PAGE[0], (MARGIN + self.left) / PAGE[1])
            page.text(*place, line, va="top", fontsize=size, color=colour, weight=weight, family=family,
                      parse_math=False)  # fmt: skip
            self.left -= height

    def chart(self, chart: Chart) -> None:
        height = SCALE * chart.height
        page = self.room(height + 3 * LINE)
        bottom = (MARGIN + self.left - height) / PAGE[1]
        axes = page.add_axes((MARGIN / PAGE[0], bottom, SCALE * WIDTH / PAGE[0], height / PAGE[1]))
        axes.imshow(pixels_of(chart), aspect="auto", interpolation="none")
        axes.set_axis_off()
        self.left -= height + 0.05


def _section(flow: _Flow, section: Section) -> None:
    flow.gap()
    # A heading stays with what it heads.
    first = section.blocks[0] if section.blocks else None
    flow.room(SCALE * first.height + 6 * LINE if isinstance(first, Chart) else 6 * LINE)
    flow.text(filter(None, [section.title]), 13, weight="bold")
    for block in section.blocks:
        if isinstance(block, Chart):
            flow.chart(block)
            flow.text(textwrap.wrap(block.caption, COLUMNS), colour="dimgrey")
            flow.gap()
            continue
        lines = list(block_lines(block, COLUMNS))
        if isinstance(block, Table):
            flow.left -= LINE
            flow.room(min(len(lines), 20) * LINE)
        flow.text(lines)

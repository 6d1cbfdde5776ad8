"""Charts of a report, drawn by matplotlib without a display: as SVG for HTML, as pixels for the pages of a PDF."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from coresim.report.content import Chart

#: Inches; text of 9 points then reads well in a column of print and on a phone.
WIDTH = 5.0
#: Text stays text in SVG: it can be read aloud, searched and copied.
STYLE: Any = {
    "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif", "axes.spines.top": False,
    "axes.spines.right": False, "axes.titlesize": 10, "legend.fontsize": 8,
}  # fmt: skip
_IDS = re.compile(r'\bid="(?=[\w. ]+_\d+")')


@contextmanager
def style(settings: Any) -> Iterator[None]:
    """Matplotlib's settings while a figure is drawn.

    A name in letters that the font lacks is drawn as boxes, and nothing is said of it.
    """
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"(?s)Glyph .* missing from")
        yield


def svg_of(chart: Chart, salt: str) -> str:
    """The chart as an ``<svg>`` element; ``salt`` keeps its ids apart from those of other charts of a page."""
    stream = io.StringIO()
    with style({**STYLE, "svg.hashsalt": salt}):
        _figure(chart).savefig(stream, format="svg", metadata={"Date": None})
    found = stream.getvalue()
    # What comes before the element, and the metadata that name matplotlib's site, are of no use inside of HTML.
    found = re.sub(r"<metadata>.*?</metadata>", "", found[found.index("<svg") :], flags=re.DOTALL)
    return _IDS.sub(f'id="{salt}.', found)


def pixels_of(chart: Chart) -> NDArray[Any]:
    """The chart as red, green and blue values, row by row."""
    with style(STYLE):
        figure = _figure(chart)
        figure.set_dpi(200)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[:, :, :3]


def _figure(chart: Chart) -> Figure:
    figure = Figure(figsize=(WIDTH, chart.height), layout="constrained")
    chart.draw(figure)
    return figure

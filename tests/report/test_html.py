"""HTML of an answer."""

from __future__ import annotations

from report_kit import TABLES

import coresim
from coresim.report.html import whole_options


def test_html_is_escaped():
    tables = {**TABLES, "accelerator": {"step": "12 ms", "name": "<b>"}}
    html = coresim.simulate(tables, workers=2, cores=4)._repr_html_()
    assert html.startswith("<pre>")
    assert "<b>" not in html


def test_no_line_breaks_within_an_option() -> None:
    assert whole_options("(--shm-size=1m <b>) -o x-y -5") == (
        '(<span class="whole">--shm-size=1m</span> &lt;b&gt;) <span class="whole">-o</span> x-y -5'
    )

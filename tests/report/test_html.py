"""HTML of an answer."""

from __future__ import annotations

import coresim
from coresim.report.html import whole_options

TABLES = {
    "workload": {"batch_size": 8, "preprocess": "4 ms", "fetch": "1 ms", "consumer": "1 ms", "batch_bytes": 1e6},
    "accelerator": {"step": "12 ms", "launch": "1 ms"},
    "host": {"cores": 2, "threads_per_core": 2, "shm_bytes": 1e6},
}


def test_html_is_escaped():
    tables = {**TABLES, "accelerator": {"step": "12 ms", "name": "<b>"}}
    html = coresim.simulate(tables, workers=2, cores=4)._repr_html_()
    assert html.startswith("<pre>")
    assert "<b>" not in html


def test_no_line_breaks_within_an_option() -> None:
    assert whole_options("(--shm-size=1m <b>) -o x-y -5") == (
        '(<span class="whole">--shm-size=1m</span> &lt;b&gt;) <span class="whole">-o</span> x-y -5'
    )

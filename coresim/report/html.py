"""jinja2's one home: a report as one HTML file that needs nothing else, and an answer as a fragment for a notebook."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from coresim.report.content import Chart, Report
from coresim.report.drawing import svg_of


def report_html(report: Report) -> str:
    """The whole file; every text is escaped, and its policy lets no browser fetch anything."""
    # Two charts of one file must not share ids: the number of the chart is the salt of its own.
    numbers = iter(range(10_000))
    return _render("report.html.j2", report=report, drawn=lambda chart: _drawn(chart, next(numbers)))


def answer_html(headline: str, facts: list[tuple[str, str]], text: str) -> str:
    """The answer for a notebook: the facts, and the whole text folded away."""
    return _render("answer.html.j2", headline=headline, facts=facts, text=text)


def _drawn(chart: Chart, number: int) -> Markup:
    # matplotlib escapes what it writes.
    return Markup(svg_of(chart, f"chart{number}"))


def _render(name: str, **values: Any) -> str:
    loader = PackageLoader("coresim.report")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(name).render(**values)

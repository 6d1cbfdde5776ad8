"""jinja2's one home: self-contained HTML reports, fragments for notebooks, and interactive pictures."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from coresim.report.charts import svg_of
from coresim.report.content import Report
from coresim.sim.noise import NOISE


def report_html(report: Report) -> str:
    """The whole file; every text is escaped, and the page's policy forbids browsers to fetch anything."""
    # Two charts of one file must not share ids: the number of the chart is the salt of its own.
    numbers = iter(range(10_000))
    # matplotlib escapes what it writes.
    return render(
        "report.html.j2", report=report, drawn=lambda chart: Markup(svg_of(chart, f"chart{next(numbers)}")),
        **_sliders(report),
    )  # fmt: skip


def _sliders(report: Report) -> dict[str, Any]:
    """The sliders' script and data; the page's policy allows only this script, by its hash."""
    surface = report.surface() if report.surface else None
    if surface is None:
        return {"surface": None}
    # As a file has it: a script that comes with the package, and no text of anybody's in it.
    script = (files("coresim.report") / "templates" / "sliders.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Six digits are more than a slider shows.
    whole = json.dumps(asdict(surface) | {"noise": NOISE})
    brief = json.loads(whole, parse_float=lambda number: float(f"{float(number):.6g}"))
    return {
        "surface": json.dumps(brief),
        "cores": surface.cores,
        "simulations": surface.simulations,
        "script": Markup(script),
        "script_hash": f"sha256-{digest}",
    }


def render(name: str, **values: Any) -> str:
    """A template filled in; every text is escaped."""
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    """The template environment; it is kept, because compiling a template takes longer than a slider may."""
    found = Environment(loader=PackageLoader("coresim.report"), autoescape=True, undefined=StrictUndefined)
    found.filters["whole_options"] = whole_options
    return found


def whole_options(text: str) -> Markup:
    """The escaped text; lines do not break within an option such as ``--shm-size``, as browsers would at hyphens."""
    # Escaping changes no letter of an option, and puts none before it.
    return Markup(re.sub(r"(?<![\w-])--?[A-Za-z][\w=.-]*", r'<span class="whole">\g<0></span>', str(escape(text))))

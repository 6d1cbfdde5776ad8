"""s(k) beyond the measured cores, held against published curves: ``python calibration/scaling.py`` writes SCALING.md.

``scaling_cases.csv`` holds one published value per row: its source, the values that are given to the prediction, where
it was measured (hardware threads per core; no cores where the source does not say), and whether it is Python threads
under the interpreter's lock. ``--cases FILE`` holds the model against another file of the same columns, and writes
nothing. Nothing of a machine is known here but its cores: no bandwidth, no clock, no pressure. The page's last part is
that of `node_cases.py`, from one GPU to a node. What predicts is in `scaling_models.py`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import node_cases
from curves import CASES, Curve, load, two_given
from pages import met, table
from scaling_models import OTHERS, Row, by_model, rows

from coresim import stats
from coresim.errors import CoresimError
from coresim.files import write_text
from coresim.model.speed import fit
from coresim.model.speed_draws import ASSUMED, LEVEL_DEVIATIONS, Assumed, Evidence, SpeedPoint

TABLE = Path(__file__).with_name("SCALING.md")
#: What the interval at `FAR` cores must be, and must hold, by the aim.
FAR, WIDEST, LEAST_HELD, MOST_HELD = 16, 0.15, 0.8, 0.95


def left_out(curves: Sequence[Curve]) -> list[Row]:
    """Each source predicted by what one would assume without it.

    That is the memory fraction and the overhead that miss the other sources' points least; a point over 30 % off counts
    as 30 %, so that one odd curve does not decide.
    """
    known = [curve for curve in curves if not curve.lock]
    tried = [
        rows(known, by_model(ASSUMED._replace(memory=memory, overhead=overhead)))
        for memory in (ASSUMED.memory._replace(value=f) for f in (0.06, 0.09, 0.12, 0.16, 0.22))
        for overhead in (ASSUMED.overhead._replace(value=o) for o in (0.02, 0.05, 0.1))
    ]

    def missed(found: Sequence[Row], source: str) -> float:
        return math.fsum(min(0.3, abs(row.error)) for row in found if row.curve.source != source)

    chosen = []
    for source in sorted({curve.source for curve in known}):
        best = min(tried, key=lambda found: missed(found, source))
        chosen += [row for row in best if row.curve.source == source]
    return chosen


def half_width(second: float, cores: int | None, assumed: Assumed = ASSUMED) -> float:
    """Relative half width of the interval at `FAR` cores from two measured; ``cores`` of the host, None: not known."""
    speeds = (SpeedPoint(1, 1.0, 0.02), SpeedPoint(2, second, 0.02))
    table = fit(Evidence(speeds=speeds, cores=cores), FAR, assumed)
    return math.sinh(LEVEL_DEVIATIONS * table.uncertainties[FAR - 1])


def known_exactly(second: float, cores: int | None) -> str:
    """What that half width would be, were one of the assumed quantities known almost exactly."""
    found = {"the misfit": half_width(second, cores, ASSUMED._replace(misfit=ASSUMED.misfit / 100))}
    for name in ("droop", "memory", "ceiling", "overhead"):
        spread = getattr(ASSUMED, name)
        exact = ASSUMED._replace(**{name: spread._replace(deviation=spread.deviation / 100)})
        found[name] = half_width(second, cores, exact)
    return ", ".join(f"{name} ±{width:.1%}" for name, width in sorted(found.items(), key=lambda item: item[1]))


CAUSE = (
    "five uncertainties add up, none of them most of it. What two cores lose may be memory time or overhead, and the"
    " two part beyond: overhead hardly grows, memory time grows above the ceiling."
)

HEAD = """# Beyond the measured cores: predicted and published

Written by `calibration/scaling.py` from `calibration/scaling_cases.csv`; do not edit. Misses come first.

Each row gives the model of `coresim/model/speed.py` what the source gives, one value for most, and asks for the others.
Of the machine only its cores are known, so these are the model's assumptions held against other people's machines; a
profile knows bandwidth, clock and pressure of its own. The interval is that of 90 %. What is assumed, middle and width,
was chosen with these curves in view, in round numbers: what this page shows of it is a fit, and the row without its
own source is nearer to what another curve will show.
"""


def page(curves: Sequence[Curve]) -> str:
    """The text of SCALING.md."""
    twice = [curve for curve in map(two_given, curves) if curve is not None]
    found, second = rows(curves, by_model()), rows(twice, by_model())
    models = {"this model": by_model()} | OTHERS
    summary = [
        [name, way, *_summary(rows(which, model))]
        for way, which in (("as the source gives", curves), ("two values given", twice))
        for name, model in models.items()
    ]
    summary.insert(1, ["this model, its source left out", "as the source gives", *_summary(left_out(curves))])
    ranked = sorted(found, key=lambda row: (row.held, -abs(row.error)))
    parts = [
        HEAD,
        table(["model", "given", "points", "median error", "90th percentile", "mean", "in the interval"], summary),
        "*Its source left out*: the middle of the memory fraction and of the overhead are chosen by the other sources\n"
        "alone, threads under the lock not counted.",
        "## Aims\n",
        "\n".join(_aims(found, second)),
        "## Every point\n",
        table(["case", "given", "at", "published", "predicted", "error", "interval", "in it"], map(_cells, ranked)),
        "## Sources\n",
        "\n".join(f"- {case}: {source}" for case, source in {c.case: c.source for c in curves}.items()),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _aims(found: Sequence[Row], second: Sequence[Row]) -> list[str]:
    lines = []
    for name, which in (("as the source gives", found), ("two values given", second)):
        held = stats.mean([float(row.held) for row in which])
        holds = LEAST_HELD <= held <= MOST_HELD
        aim = f"the interval holds {LEAST_HELD:.0%} to {MOST_HELD:.0%} of the published points, {name}"
        lines.append(f"- {met(holds)}: {aim}: it holds {held:.0%} of {len(which)}")
    pairs = [(second, cores) for cores in (FAR, 48, None) for second in (0.98, 0.95, 0.9)]
    for pair in pairs:
        lines += _width_lines(*pair)
    wide = ASSUMED._replace(ceiling=ASSUMED.ceiling._replace(deviation=0.34))
    widest = max(half_width(*pair, wide) for pair in pairs)
    lines.append(f"- Were ceilings as far apart as processors are on paper (34 %), it would be up to ±{widest:.0%}.")
    return lines


def _width_lines(second: float, cores: int | None) -> list[str]:
    width = half_width(second, cores)
    host = f"s(2) = {second:g}, host of {cores or 'unknown'} cores"
    holds = round(width, 3) <= WIDEST
    lines = [f"- {met(holds)}: at most ±{WIDEST:.0%} at {FAR} cores from two measured ({host}): ±{width:.1%}"]
    if not holds:
        lines.append(f"    - Why: {CAUSE} Were one of them known exactly, it would be: {known_exactly(second, cores)}.")
    return lines


def _summary(found: Sequence[Row]) -> list[str]:
    errors = [abs(row.error) for row in found]
    shown = [f"{of(errors):.1%}" for of in (stats.median, lambda values: stats.quantile(values, 0.9), stats.mean)]
    return [str(len(found)), *shown, f"{stats.mean([float(row.held) for row in found]):.0%}"]


def _cells(row: Row) -> list[str]:
    curve, found = row.curve, row.predicted
    given = ", ".join(f"{count}: {_show(value)}" for count, value in curve.given.items())
    given += "" if math.isinf(curve.cap) else f", at most {_show(curve.cap)}"
    held = "yes" if row.held else "**no**"
    interval = f"{_show(found.low)} to {_show(found.high)}"
    shown = [_show(curve.published[row.count]), _show(found.value), f"{row.error:+.1%}", interval, held]
    return [curve.case, given, str(row.count), *shown]


def _show(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def whole_page() -> str:
    """What SCALING.md holds: the curves, and the nodes."""
    return f"{page(load())}\n{node_cases.section(node_cases.load())}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or print another file's."""
    parser = argparse.ArgumentParser(description="Hold s(k) beyond the measured cores against published curves.")
    parser.add_argument("--cases", type=Path, help=f"another file like {CASES.name}; print its page only")
    options = parser.parse_args(arguments)
    try:
        text = page(load(options.cases)) if options.cases else whole_page()
    except CoresimError as error:
        print(f"scaling.py: {error}", file=sys.stderr)
        return 2
    if options.cases is None:
        write_text(TABLE, text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A fleet plan as text and as a JSON-ready document."""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coresim.advise.fleet import FleetPlan, Mix, Row, Unknown
from coresim.model.fleet import FleetWorkload
from coresim.report.results import record_of
from coresim.report.scheduler_requests import scheduler_requests
from coresim.report.words import WIDTH, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_HEADER = ("machine", "GPUs", "cores/GPU", "needed", "opt", "GPU idle [95 %]", "samples/s", "USD/M samples", "stranded")


def fleet_text(plan: FleetPlan, top: int = 3) -> str:
    """The best machines for the mix and for each workload, ``top`` of each, what is stranded, and what to ask for."""
    parts = [_mixes(plan.mixes(), plan, top)]
    parts += [_workload(workload, plan, top) for workload in plan.fleet.workloads]
    parts.append(_legend(plan))
    return "\n\n".join(parts)


def _mixes(mixes: Sequence[Mix], plan: FleetPlan, top: int) -> str:
    if not mixes:
        return "Whole mix: no machine has a prediction for every workload; give step times (steps) or models."
    lines = [f"Whole mix ({_count(len(plan.fleet.workloads), 'workload')}) on one kind of machine, best first"]
    return "\n".join([*lines, *(f"  {_mix(mix)}" for mix in mixes[:top]), *_more(len(mixes), top)])


def _more(there: int, top: int) -> list[str]:
    """That machines are left out, so that none that somebody named is missing without a word."""
    return [f"  {there - top} more: --top {there} shows all"] if there > top else []


def _mix(mix: Mix) -> str:
    cost = "price not known" if mix.cost is None else f"{mix.cost:,.0f} USD"
    short = sum(not row.meets_target for row in mix.rows)
    missed = f"; {_count(short, 'workload')} beyond the idle target" if short else ""
    idle = f"{mix.gpu_hours:,.0f} GPU-hours, {mix.idle_gpu_hours:,.0f} of them idle"
    return f"{mix.candidate.name}: {cost}, {idle}{missed}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _workload(workload: FleetWorkload, plan: FleetPlan, top: int) -> str:
    rows = plan.pairs(workload)
    missing = [found for found in plan.unknown if found.workload is workload]
    title = f"{workload.name}: {workload.gpu_hours:g} GPU-hours"
    target = f"idle within {percent(workload.scenario.target.gpu_idle)}"
    if not rows:
        return "\n".join([f"{title}, {target}: no prediction", *_reasons(missing)])
    rows = _best_first(rows)
    within, beyond = [row for row in rows if row.meets_target], [row for row in rows if not row.meets_target]
    best = rows[0]
    lines = [f"{title}, {target}: {best.candidate.name}"] if within else [f"{title}: no machine is {target}"]
    if within:
        lines += [*_table(within[:top]), *_more(len(within), top)]
    if beyond:
        lines += ["  idle beyond the target, cheapest samples first:", *_table(beyond[:top]), *_more(len(beyond), top)]
    notes = [line for note in best.notes for line in _wrapped(f"{best.candidate.name}: {note}")]
    return "\n".join([*lines, *notes, *_reasons(missing), *_asked(best)])


def _best_first(rows: Sequence[Row]) -> list[Row]:
    """What meets the target before what does not, each in its order."""
    return sorted(rows, key=lambda row: not row.meets_target)


def _table(rows: Sequence[Row]) -> list[str]:
    cells = [_HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cells(row: Row) -> tuple[str, ...]:
    outcome, price, stranded = row.outcome, row.price_per_million, row.stranded_cores
    idle = f"{percent(outcome.gpu_idle)} [{100 * outcome.gpu_idle_low:.1f}, {100 * outcome.gpu_idle_high:.1f}]"
    cores = "cores ?" if stranded is None else f"{stranded:g} cores"
    return (
        row.candidate.name,
        str(row.candidate.gpu_count),
        f"{outcome.cores_had:.4g}",
        "none will do" if outcome.cores_needed is None else str(outcome.cores_needed),
        str(row.option),
        idle,
        f"{outcome.throughput:.0f}",
        "?" if price is None else f"{price:.4g}",
        f"{cores}, {row.idle_gpus:.2g} GPUs",
    )


def _reasons(missing: Sequence[Unknown]) -> list[str]:
    counts = Counter(found.reason for found in missing)
    lines = [f"not predicted on {_count(count, 'machine')}: {reason}" for reason, count in counts.most_common(3)]
    if len(counts) > 3:
        lines.append(f"not predicted on {_count(sum(counts.values()), 'machine')} in all; --json lists them")
    return [part for line in lines for part in _wrapped(line)]


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_long_words=False)


def _asked(row: Row) -> list[str]:
    lines = [line for text in scheduler_requests(row).values() for line in text.splitlines()]
    return [f"  ask for, on {row.candidate.name}:", *(f"    {line}" for line in lines)]


def _legend(plan: FleetPlan) -> str:
    text = (
        "Cores are physical and per GPU. needed: fewest within the idle target; a job uses these, or all"
        " there are. stranded: of the host, cores paid for and not needed, GPUs paid for and idle. Prices are the"
        " catalogue's on its day or your file's; '?' is not known, and such machines come last. GPU-hours are those of"
        " the input's own GPU, never idle. The interval holds the uncertainty of the inputs and of their transfer,"
        " which each note states."
    )
    return "\n".join(textwrap.wrap(text, WIDTH))


@dataclass(frozen=True)
class Planned:
    """A fleet plan that prints well; ``result`` is the plan itself."""

    result: FleetPlan

    def __str__(self) -> str:
        return fleet_text(self.result)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_frame(self) -> pd.DataFrame:
        """One row for each workload, machine and option."""
        from coresim.report.tables import fleet_frame  # noqa: PLC0415 - pandas is imported only when asked for

        return fleet_frame(self.result)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Predicted GPU idle on the best machines."""
        from coresim.report.figures import plot_fleet  # noqa: PLC0415 - matplotlib is imported only when asked for

        return plot_fleet(self.result, axes)


def fleet_document(plan: FleetPlan, about: dict[str, Any]) -> dict[str, Any]:
    """Every row, the best for each workload with what to ask for, the mixes, and what was not predicted."""
    best = {workload.name: _best_first(plan.pairs(workload))[:1] for workload in plan.fleet.workloads}
    return {
        "format": "coresim-fleet-plan",
        "schema_version": 1,
        "about": about,
        "best": {name: _best(rows[0]) if rows else None for name, rows in best.items()},
        "mix": [_mix_record(mix) for mix in plan.mixes()],
        "rows": [record_of(row) for row in plan.rows],
        "not_predicted": [
            {"workload": found.workload.name, "machine": found.candidate.name, "reason": found.reason}
            for found in plan.unknown
        ],
    }


def _best(row: Row) -> dict[str, Any]:
    return {
        "machine": row.candidate.name, "option": row.option, "meets_target": row.meets_target,
        "ask_for": scheduler_requests(row),
    }  # fmt: skip


def _mix_record(mix: Mix) -> dict[str, Any]:
    return {
        "machine": mix.candidate.name,
        "cost_usd": mix.cost,
        "gpu_hours": mix.gpu_hours,
        "idle_gpu_hours": mix.idle_gpu_hours,
        "workloads_beyond_target": sum(not row.meets_target for row in mix.rows),
    }

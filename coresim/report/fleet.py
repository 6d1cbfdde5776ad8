"""A fleet plan as text and as a JSON-ready document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coresim import report
from coresim.advise.refine import LIKELY
from coresim.fleet.description import FleetWorkload
from coresim.fleet.plan import FleetPlan, Mix, Row, Unknown
from coresim.report.content import Block, Items, Paragraph, Section, Table, Verbatim
from coresim.report.doubt import sureness
from coresim.report.plain import answer_lines
from coresim.report.records import VERSION, Key, Record, constant, keys, or_null
from coresim.report.results import ROW
from coresim.report.scheduler_requests import scheduler_requests
from coresim.report.shown import Shown
from coresim.report.words import percent, plural, ranged

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


_COLUMNS = (
    "machine", "GPUs", "cores/GPU", "needed", "opt", "GPU idle [95 %]", "samples/s", "USD/M samples", "stranded",
)  # fmt: skip
_LEGEND = (
    "Cores are physical and per GPU. needed: fewest that meet the idle target with the confidence asked for;"
    " (likely): as likely as not, where the machine has no more. A job uses these, or all there are. stranded: of the"
    " host, cores paid for and not needed, GPUs paid for and idle. Prices are the catalogue's on its day or your"
    " file's; '?' is not known, and such machines come last. GPU-hours are those of the input's own GPU, never idle."
    " The interval holds the uncertainty of the inputs and of their transfer, which each note states."
)


def fleet_text(plan: FleetPlan, top: int = 3) -> str:
    """The ``top`` machines for the mix and for each workload, stranded cores, and the request for a scheduler."""
    workloads = (_workload(workload, plan, top) for workload in plan.fleet.workloads)
    return answer_lines("", _mixes(plan, top), *workloads, Section("", (Paragraph(_LEGEND),)))


def _mixes(plan: FleetPlan, top: int) -> Section:
    mixes = plan.mixes()
    if not mixes:
        none = "Whole mix: no machine has a prediction for every workload; give step times (steps) or models."
        return Section("", (Paragraph(none),))
    title = f"Whole mix ({plural(len(plan.fleet.workloads), 'workload')}) on one kind of machine, best first"
    return Section(title, (*(Paragraph(_mix(mix)) for mix in mixes[:top]), *_more(len(mixes), top)))


def _more(there: int, top: int) -> list[Paragraph]:
    """A note that names how many machines are left out."""
    return [Paragraph(f"{there - top} more: --top {there} shows all")] if there > top else []


def _mix(mix: Mix) -> str:
    cost = "price not known" if mix.cost is None else f"{mix.cost:,.0f} USD"
    short = sum(not row.meets_target for row in mix.rows)
    missed = f"; {plural(short, 'workload')} beyond the idle target" if short else ""
    idle = f"{mix.gpu_hours:,.0f} GPU-hours, {mix.idle_gpu_hours:,.0f} of them idle"
    return f"{mix.candidate.name}: {cost}, {idle}{missed}"


def _workload(workload: FleetWorkload, plan: FleetPlan, top: int) -> Section:
    rows = plan.best_first(workload)
    missing = _reasons([found for found in plan.unknown if found.workload is workload])
    title = f"{workload.name}: {workload.gpu_hours:g} GPU-hours"
    target = f"idle within {percent(workload.scenario.target.gpu_idle)}"
    if not rows:
        return Section(f"{title}, {target}: no prediction", (missing,))
    within, beyond = [row for row in rows if row.meets_target], [row for row in rows if not row.meets_target]
    best = rows[0]
    heading = f"{title}, {target}: {best.candidate.name}" if within else f"{title}: no machine is {target}"
    blocks: list[Block] = []
    for shown, above in ((within, ""), (beyond, "idle beyond the target, cheapest samples first:")):
        if shown:
            blocks += [Table(_COLUMNS, tuple(map(_cells, shown[:top])), above), *_more(len(shown), top)]
    notes = tuple(f"{best.candidate.name}: {note}" for note in best.notes)
    asked = "\n".join(scheduler_requests(best).values()).replace("\n", "\n  ")
    asked = f"ask for, on {best.candidate.name} ({_taken(best)}):\n  {asked}"
    return Section(heading, (*blocks, Items((*notes, *missing.lines)), Verbatim(asked)))


def _cells(row: Row) -> tuple[str, ...]:
    outcome, price, stranded = row.outcome, row.price_per_million, row.stranded_cores
    needed = outcome.minimum_cores
    cores = "cores ?" if stranded is None else f"{stranded:g} cores"
    return (
        row.candidate.name,
        str(row.candidate.gpu_count),
        f"{outcome.cores_had:.4g}",
        "none will do" if needed is None else f"{needed}{' (likely)' if outcome.confidence == LIKELY else ''}",
        str(row.option),
        ranged(outcome.gpu_idle, outcome.gpu_idle_low, outcome.gpu_idle_high),
        f"{outcome.throughput:.0f}",
        "?" if price is None else f"{price:.4g}",
        f"{cores}, {row.idle_gpus:.2g} GPUs",
    )


def _taken(row: Row) -> str:
    """The core count of a request."""
    outcome = row.outcome
    if outcome.minimum_cores is None or outcome.confidence is None or not outcome.has_enough:
        return "all the cores there are"
    how = sureness(outcome.confidence) if outcome.confidence > LIKELY else "within the target as likely as not"
    return f"{plural(outcome.minimum_cores, 'core')} per GPU, {how}"


def _reasons(missing: Sequence[Unknown]) -> Items:
    counts = Counter(found.reason for found in missing)
    lines = [f"not predicted on {plural(count, 'machine')}: {reason}" for reason, count in counts.most_common(3)]
    if len(counts) > 3:
        lines.append(f"not predicted on {plural(sum(counts.values()), 'machine')} in all; --json lists them")
    return Items(tuple(lines))


@dataclass(frozen=True, repr=False)
class Planned(Shown):
    """A fleet plan that prints well; ``result`` is the plan itself."""

    result: FleetPlan

    def __str__(self) -> str:
        return fleet_text(self.result)

    def to_frame(self) -> pd.DataFrame:
        """One row for each workload, machine and option."""
        return report.tables.fleet_frame(self.result)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Predicted GPU idle on the best machines."""
        return report.figures.plot_fleet(self.result, axes)


_BEST = Record(
    Key("machine", "text", "candidate.name"),
    Key("option", "option"),
    Key("meets_target", "truth"),
    Key("confidence", "share?", "outcome.confidence"),
    Key("ask_for", "table", scheduler_requests),
)
_MIX = Record(
    Key("machine", "text", "candidate.name"),
    Key("cost_usd", "amount?", "cost"),
    *keys("amount", "gpu_hours", "idle_gpu_hours"),
    Key("workloads_beyond_target", "whole", lambda mix: sum(not row.meets_target for row in mix.rows)),
)
_NOT_PREDICTED = Record(
    Key("workload", "text", "workload.name"), Key("machine", "text", "candidate.name"), Key("reason", "text")
)
#: Of a `FleetPlan`; ``about`` is given beside it.
PLAN = Record(
    constant("format", "coresim-fleet-plan"),
    VERSION,
    Key("about", "table"),
    Key("best", {"type": "object", "additionalProperties": or_null(_BEST.schema())}, lambda plan: _best(plan)),
    Key("mix", _MIX, lambda plan: plan.mixes(), each=True),
    Key("rows", ROW, each=True),
    Key("not_predicted", _NOT_PREDICTED, "unknown", each=True),
)


def _best(plan: FleetPlan) -> dict[str, dict[str, Any] | None]:
    rows = {workload.name: plan.best_first(workload) for workload in plan.fleet.workloads}
    return {name: _BEST.write(found[0]) if found else None for name, found in rows.items()}

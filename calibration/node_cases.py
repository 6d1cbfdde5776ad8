"""The loss from one GPU to all of a node, predicted beside published: `calibration/scaling.py` writes it to SCALING.md.

``node_cases.csv`` holds one published pair of rates per row, of one GPU and of a whole node, or the reason for which it
is left out. A row is predicted if it has both rates, the host's cores and the loader workers of each GPU; ``not_held``
says what it lacks to be held to the bound. ``clocks``: base and highest clock of the processor, GHz, by its vendor's
data sheet. *Loss* is 1 - rate of n GPUs / (n x rate of one GPU). ``bound`` is what holds the one GPU back by the
source:

* ``loader``: nets of different cost have the same rate, within `PUBLISHED`. The cost of a sample is what makes the
  workers of one GPU as fast as that; the source does not give the step, which is taken as `STEP` of the loader's time
  for a batch.
* ``step``: a step takes the batch over the rate of one GPU; the cost of a sample is that of the row ``cost_from``,
  which ran the same loader.

Both are simulated, one rank and then all of them, with s(k) and siblings of `coresim.model.speed` from that one rate
and what the processor tells: cores, memory channels, clocks. Not given and left out: the time of the all-reduce, the
hand-over, and how samples differ in cost.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curves import rate_of
from pages import met, table

from coresim import simulate
from coresim.errors import InputError
from coresim.machines.machines import channels_of
from coresim.measure.speed_evidence import all_core_clock
from coresim.model.speed import fit
from coresim.model.speed_draws import Evidence, SpeedPoint

CASES = Path(__file__).with_name("node_cases.csv")
#: How exactly a published rate is known, and the bound of the aim, a share.
PUBLISHED, BOUND = 0.04, 0.05
#: Of a loader-bound row: its step over the loader's time for a batch. The batch where the source gives none.
STEP, BATCH = 0.5, 256
STEPS, REPLICATIONS = 200, 1  # no time varies


class Case(NamedTuple):
    """One published pair of rates, samples per second; ``left_out``: why it is not predicted, or ""."""

    case: str
    machine: str
    cores: int
    threads_per_core: int
    gpus: int
    workers: int
    batch: int
    bound: str
    cost_from: str
    rate_1: float
    rate_n: float
    left_out: str
    not_held: str
    clocks: str
    source: str

    @property
    def loss(self) -> float:
        """Published."""
        return 1.0 - self.rate_n / (self.gpus * self.rate_1)

    @property
    def channels(self) -> float | None:
        """Bytes per second of the memory channels of the processor that the source names; None where not known."""
        found = re.search(r"(\d+) x (.+)", self.machine)
        return channels_of(found[2], int(found[1])) if found else None


class Row(NamedTuple):
    """A case beside its prediction."""

    case: Case
    loss: float

    @property
    def error(self) -> float:
        """Predicted minus published, a share."""
        return self.loss - self.case.loss


def load(path: Path = CASES) -> list[Case]:
    """The cases of a file.

    Raises:
        InputError: a row cannot be understood.
    """
    found = []
    for number, row in enumerate(csv.DictReader(path.read_text(encoding="utf-8").splitlines()), start=2):
        try:
            found.append(_case(row))
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"{path}, line {number}: {error}; see the columns of {CASES.name}") from None
    return found


def _case(row: dict[str, str]) -> Case:
    if not row["left_out"]:
        if row["bound"] not in ("loader", "step") or (row["bound"] == "step") != bool(row["cost_from"]):
            raise ValueError("bound must be loader, or step with a cost_from")
        if not all(row[name] for name in ("cores", "workers", "rate_1", "rate_n")):
            raise ValueError("cores, workers, rate_1 and rate_n are needed, or the reason in left_out")
    whole = {name: int(row[name] or 0) for name in ("cores", "threads_per_core", "gpus", "workers")}
    rates = {name: float(row[name] or 0) for name in ("rate_1", "rate_n")}
    return Case(**row | whole | rates | {"batch": int(row["batch"] or BATCH)})  # type: ignore[arg-type]


def tables(case: Case, cost_of: Case) -> dict[str, dict[str, object]]:
    """The scenario of a case; ``cost_of`` is the loader-bound case that tells the cost of a sample."""
    known = (SpeedPoint(cost_of.workers, cost_of.rate_1 / cost_of.workers, PUBLISHED),)
    table = fit(_evidence(cost_of, known), cost_of.cores)
    cost = rate_of(table, cost_of.workers, cost_of.cores).value / cost_of.rate_1
    if case.cores != cost_of.cores:  # another machine, of which no rate tells a speed
        table = fit(_evidence(case), case.cores)
    step = case.batch / case.rate_1 * (STEP if case.bound == "loader" else 1.0)
    return {
        "workload": {"batch_size": case.batch, "preprocess": f"{float(cost)!r} s"},
        "accelerator": {"step": f"{float(step)!r} s", "run_ahead": 1},
        "host": {
            "cores": case.cores,
            "threads_per_core": case.threads_per_core,
            "speed": list(table.values),
            "siblings": float(table.sibling),
        },
    }


def _evidence(case: Case, speeds: tuple[SpeedPoint, ...] = ()) -> Evidence:
    """What coresim would know of such a host: its cores, and what its processor tells."""
    clocks = [float(clock) for clock in case.clocks.split(" to ") if clock]
    return Evidence(
        speeds=speeds,
        droop=(all_core_clock(clocks[0], clocks[1], case.cores),) if clocks else (),
        channels=case.channels,
        cores=case.cores,
        threads_per_core=case.threads_per_core,
    )


def predicted(case: Case, cost_of: Case) -> float:
    """The loss, from a simulation of one GPU and one of the node."""
    scenario = tables(case, cost_of)
    rates = []
    for count in (1, case.gpus):
        device = scenario["accelerator"] | {"count": count}
        found = simulate(
            scenario | {"accelerator": device}, option=2, workers=case.workers, cores=case.cores, steps=STEPS,
            replications=REPLICATIONS,
        )  # fmt: skip
        rates.append(found.result.throughput_samples_per_s)
    return 1.0 - rates[1] / (case.gpus * rates[0])


def rows(cases: Sequence[Case]) -> list[Row]:
    """Those that give enough, the largest misses first."""
    by_name = {case.case: case for case in cases}
    found = [Row(case, predicted(case, by_name[case.cost_from or case.case])) for case in cases if not case.left_out]
    return sorted(found, key=lambda row: -abs(row.error))


HEAD = """## From one GPU to a node: predicted and published

Written from `calibration/node_cases.csv` by `calibration/node_cases.py`, which says how. Loss is what a node loses of
its GPUs' single rates. Given are the rate of one GPU, the cores, the workers of each GPU, and what the named processor
tells: its memory channels (`coresim/data/machines.csv`) and its clocks. The rest is assumed, and was chosen with these
rows in view too.
"""
WHY = """A row that is bound by the loader is as good as s(k) and the siblings are: its loss is the work that all
workers of the node lack. In a row that is bound by the step, the published loss holds the all-reduce too, whose time no
source gives; the predicted one is only what the host's cores add."""


def section(cases: Sequence[Case]) -> str:
    """The part of SCALING.md."""
    found = rows(cases)
    held = [row for row in found if not row.case.not_held]
    bare = [row for row in rows([case._replace(machine="", clocks="") for case in cases]) if not row.case.not_held]
    others = [row for row in found if row.case.not_held]
    head = ["case", "cores", "workers per GPU", "one GPU is bound by", "published", "predicted", "error, points"]
    left_out = [f"- {case.case} ({case.machine}): {case.left_out}" for case in cases if case.left_out]
    sources = [f"- {case.case}: {case.source}" for case in cases]
    parts = [
        HEAD,
        f"- {met(_within(held) == len(held))}: the loss from 1 to 8 GPUs within {100 * BOUND:.0f} points, where the"
        f" source gives enough: {_within(held)} of {len(held)}\n"
        f"- for comparison, told the cores and nothing more of the processor: {_within(bare)} of {len(bare)}, the"
        f" largest miss {100 * max(abs(row.error) for row in bare):.1f} points; no loss at all:"
        f" {sum(row.case.loss <= BOUND for row in held)} of {len(held)}, {100 * max(row.case.loss for row in held):.1f}"
        " points",
        table(head, map(_cells, held)),
        WHY,
        "### Predicted, but the source does not give enough\n",
        table([*head, "what it lacks"], [[*_cells(row), row.case.not_held] for row in others]),
        "### Not predicted\n\n" + "\n".join(left_out),
        "### Sources of the nodes\n\n" + "\n".join(sources),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _within(found: Sequence[Row]) -> int:
    """How many are within the bound."""
    return sum(abs(row.error) <= BOUND for row in found)


def _cells(row: Row) -> list[str]:
    case, error = row.case, f"{100 * row.error:+.1f}"
    host = f"{case.cores} x {case.threads_per_core} threads"
    shown = error if abs(row.error) <= BOUND else f"**{error}**"
    return [case.case, host, str(case.workers), case.bound, f"{case.loss:.1%}", f"{row.loss:z.1%}", shown]


if __name__ == "__main__":
    print(section(load()))

"""Workloads on machines: for each pair the cores needed and present, the predicted idle, the price, and the best pair.

Pairs with the same simulated inputs (the same step time, GPU count and transferred CPU times) are one *task*: their
search for the cores needed is done once, from the bound that no schedule beats, and all machines that have them share
one run. The core count of a workload's best machine is searched again as `coresim.advise.recommend` does, so that both
give the same. If another machine is then the best, it is searched too. Any `concurrent.futures.Executor` runs the
tasks, in this process or on a cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass, replace
from typing import Any

from coresim import __version__
from coresim.advise.refine import CONFIDENCE, check_confidence
from coresim.advise.starved import SEARCHED
from coresim.errors import InputError
from coresim.fleet.description import Candidate, Fleet, FleetWorkload
from coresim.fleet.task import FLEET_PLAN, Cores, Outcome, Task, run_task
from coresim.fleet.transfer import Transferred, transfer
from coresim.model.option import Option
from coresim.sim.estimate import Plan
from coresim.sim.noise import NOISE


@dataclass(frozen=True)
class Row:
    """One option of one pair with its key: the hash of everything that the outcome depends on."""

    key: str
    workload: FleetWorkload
    candidate: Candidate
    option: Option
    outcome: Outcome
    notes: tuple[str, ...]

    @property
    def price_per_h(self) -> float | None:
        """USD per hour of the host."""
        return self.candidate.price(self.outcome.cores_had)

    @property
    def price_per_million(self) -> float | None:
        """USD per million samples."""
        return None if self.price_per_h is None else self.price_per_h / self.outcome.throughput / 3600 * 1e6

    @property
    def hours(self) -> float:
        """Hours of one such host for the whole workload."""
        return self.workload.samples / self.outcome.throughput / 3600

    @property
    def cost(self) -> float | None:
        """USD for the whole workload."""
        return None if self.price_per_h is None else self.price_per_h * self.hours

    @property
    def meets_target(self) -> bool:
        """Whether the predicted idle is within the workload's target, or beyond it by no more than noise."""
        return self.outcome.gpu_idle <= self.workload.scenario.target.gpu_idle + NOISE

    @property
    def stranded_cores(self) -> float | None:
        """Cores of the host that are paid for and not needed; None where no core count would do."""
        if self.outcome.minimum_cores is None:
            return None
        return max(0.0, self.outcome.cores_had - self.outcome.minimum_cores) * self.candidate.gpu_count

    @property
    def idle_gpus(self) -> float:
        """GPUs of the host that are paid for and idle, on average."""
        return self.outcome.gpu_idle * self.candidate.gpu_count


@dataclass(frozen=True)
class Unknown:
    """A pair without a prediction, and why."""

    workload: FleetWorkload
    candidate: Candidate
    reason: str


@dataclass(frozen=True)
class Mix:
    """All workloads on one kind of machine; USD (None: a price is not known), hours of the host, GPU-hours idle."""

    candidate: Candidate
    rows: tuple[Row, ...]
    cost: float | None
    gpu_hours: float
    idle_gpu_hours: float


@dataclass(frozen=True)
class FleetPlan:
    """Every pair, in the order of the fleet: its rows (one for each option), or why there is none."""

    fleet: Fleet
    rows: tuple[Row, ...]
    unknown: tuple[Unknown, ...]

    def pairs(self, workload: FleetWorkload) -> list[Row]:
        """The best option on each candidate, the best candidate first."""
        best: dict[str, Row] = {}
        for row in self.rows:
            if row.workload.name == workload.name:
                best[row.candidate.name] = _better(best.get(row.candidate.name, row), row)
        return sorted(best.values(), key=_rank)

    def best_first(self, workload: FleetWorkload) -> list[Row]:
        """`pairs`, with those that meet the target first."""
        return sorted(self.pairs(workload), key=lambda row: not row.meets_target)

    def mixes(self) -> list[Mix]:
        """Every candidate that has a prediction for all workloads, the best first."""
        best = {w.name: {row.candidate.name: row for row in self.pairs(w)} for w in self.fleet.workloads}
        found = []
        for candidate in self.fleet.candidates:
            rows = tuple(best[w.name][candidate.name] for w in self.fleet.workloads if candidate.name in best[w.name])
            if len(rows) == len(self.fleet.workloads):
                found.append(_mix(candidate, rows))
        return sorted(found, key=lambda mix: (mix.cost is None, mix.cost or 0.0, mix.gpu_hours))


def _better(one: Row, other: Row) -> Row:
    """The option that idles less by more than noise, else the simpler one, which comes first."""
    return other if other.outcome.gpu_idle < one.outcome.gpu_idle - NOISE else one


def _rank(row: Row) -> tuple[bool, float, float]:
    """Cheapest samples first; where no price is known, the most samples per GPU, behind all that have a price."""
    price = row.price_per_million
    return price is None, price or 0.0, -row.outcome.throughput / row.candidate.gpu_count


def _mix(candidate: Candidate, rows: tuple[Row, ...]) -> Mix:
    costs = [row.cost for row in rows]
    hours = [row.hours * candidate.gpu_count for row in rows]
    idle = sum(hour * row.outcome.gpu_idle for hour, row in zip(hours, rows, strict=True))
    cost = None if None in costs else sum(cost for cost in costs if cost is not None)
    return Mix(candidate, rows, cost, sum(hours), idle)


#: Tasks that an executor is sent at once, and how many such parcels there are at least before they hold more than one.
LARGEST_PARCEL, FEWEST_PARCELS = 8, 128
Save = Callable[[Row], None]
Progress = Callable[[str, float], None]


def plan_fleet(
    fleet: Fleet,
    *,
    executor: Executor | None = None,
    plan: Plan = FLEET_PLAN,
    engine: str = "fast",
    confidence: float = CONFIDENCE,
    done: Mapping[str, Outcome] | None = None,
    save: Save | None = None,
    progress: Progress | None = None,
) -> FleetPlan:
    """Predict every workload on every candidate.

    Args:
        executor: where tasks run; None: here, one after another.
        plan: how much to simulate for each pair.
        confidence: how sure the cores needed are to meet the target, on hosts that have so many.
        done: outcomes already known, by the key of their row; they are not simulated again.
        save: called with each row as it is finished, in any order.
        progress: called with the share that is done.
    """
    check_confidence(confidence)
    book = _Schedule(fleet, plan, engine, dict(done or {}), confidence)
    tell, what, tasks = progress or (lambda *_: None), "fleet", book.tasks()
    while tasks:
        tell(what, 0.0)
        for count, (task, found) in enumerate(_run(tasks, executor), start=1):
            for row in book.enter(task, found):
                if save:
                    save(row)
            tell(what, count / len(tasks))
        what, tasks = "what to ask for", book.searches()
    return book.plan()


def _run(tasks: Sequence[Task], executor: Executor | None) -> Iterator[tuple[Task, Any]]:
    if executor is None:
        yield from ((task, run_task(task)) for task in tasks)
        return
    # What is sent one by one costs more to send than its results are worth waiting for, where there are very many.
    size = max(1, min(LARGEST_PARCEL, len(tasks) // FEWEST_PARCELS))
    parcels = (tasks[at : at + size] for at in range(0, len(tasks), size))
    futures = {executor.submit(_run_all, parcel): parcel for parcel in parcels}
    try:
        for future in as_completed(futures):
            yield from zip(futures.pop(future), future.result(), strict=True)
    finally:
        for future in futures:
            future.cancel()


def _run_all(tasks: Sequence[Task]) -> list[dict[tuple[Cores, Option], Outcome]]:
    return [run_task(task) for task in tasks]


@dataclass(frozen=True)
class _Cell:
    """One pair and option: where its outcome is to be entered."""

    key: str
    workload: FleetWorkload
    candidate: Candidate
    option: Option
    transferred: Transferred
    cores: Cores


class _Schedule:
    """Which pair waits for which task."""

    def __init__(self, fleet: Fleet, runs: Plan, engine: str, known: dict[str, Outcome], confidence: float) -> None:
        self.fleet, self.runs, self.engine, self.known, self.confidence = fleet, runs, engine, known, confidence
        self.unknown: list[Unknown] = []
        self.cells = list(self._cells())

    def _cells(self) -> Iterator[_Cell]:
        for workload in self.fleet.workloads:
            job = _digest(__version__, workload.scenario.to_dict(), asdict(self.runs), self.engine, self.confidence)
            known: dict[object, tuple[Transferred, str] | str] = {}
            for candidate in self.fleet.candidates:
                what = (candidate.gpu, candidate.cpu, candidate.gpu_count, candidate.memory_bytes)
                if what not in known:
                    known[what] = self._transferred(workload, candidate, job)
                found = known[what]
                if isinstance(found, str):
                    self.unknown.append(Unknown(workload, candidate, found))
                    continue
                transferred, digest = found
                cores = Cores(candidate.cores_per_gpu, candidate.most_cores_per_gpu)
                for option in self.fleet.options:
                    yield _Cell(_digest(digest, cores, option), workload, candidate, option, transferred, cores)

    def _transferred(self, workload: FleetWorkload, candidate: Candidate, job: str) -> tuple[Transferred, str] | str:
        """The job on that kind of host and the digest of both, or why that is not known."""
        try:
            transferred = transfer(workload, candidate, self.fleet.cpu_speed)
            transferred.scenario(workload.scenario)
        except InputError as error:
            return str(error)
        return transferred, _digest(job, replace(transferred, notes=()))

    def tasks(self) -> list[Task]:
        """What is not known yet, one task for each job and kind of host; where all is known, `searches`."""
        return self._tasks((cell for cell in self.cells if cell.key not in self.known), False) or self.searches()

    def searches(self) -> list[Task]:
        """Tasks for the best machines whose core count was not yet searched as a recommendation searches it."""
        plan = self.plan()
        best = [row for workload in self.fleet.workloads for row in plan.best_first(workload)[:1]]
        keys = {row.key for row in best if row.outcome.has_enough and row.outcome.provenance != SEARCHED}
        return self._tasks((cell for cell in self.cells if cell.key in keys), True)

    def _tasks(self, cells: Iterable[_Cell], searched: bool) -> list[Task]:
        self.waiting: dict[tuple[str, Transferred], list[_Cell]] = {}
        for cell in cells:
            self.waiting.setdefault((cell.workload.name, cell.transferred), []).append(cell)
        return [self._task(cells, searched) for cells in self.waiting.values()]

    def _task(self, cells: list[_Cell], searched: bool) -> Task:
        options = tuple(dict.fromkeys(cell.option for cell in cells))
        cores = tuple(dict.fromkeys(cell.cores for cell in cells))
        job = cells[0].workload.name, cells[0].workload.scenario, cells[0].transferred
        return Task(*job, options, cores, self.runs, self.engine, self.confidence, searched)

    def enter(self, task: Task, found: Mapping[tuple[Cores, Option], Outcome]) -> Iterator[Row]:
        """Note a task's outcomes; the rows that they complete."""
        for cell in self.waiting[task.workload, task.transferred]:
            self.known[cell.key] = found[cell.cores, cell.option]
            yield self._row(cell)

    def plan(self) -> FleetPlan:
        """Every row, in the order of the fleet."""
        return FleetPlan(self.fleet, tuple(self._row(cell) for cell in self.cells), tuple(self.unknown))

    def _row(self, cell: _Cell) -> Row:
        return Row(cell.key, cell.workload, cell.candidate, cell.option, self.known[cell.key], cell.transferred.notes)


def _digest(*parts: object) -> str:
    """A hash of values, the same in every process and on every machine."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

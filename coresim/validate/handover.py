"""The hand-over: how long a trainer waits for a batch beyond its own CPU time, though a worker has made it.

A loader of processes sends a batch as handles of shared memory, which the trainer asks the batch's maker for. That
depends on two things at the moment at which the batch is both wanted and made: the maker's threads that send wait for
the interpreter's lock while it makes another batch, longest early in it; and where the other workers leave no core
free, whoever wakes waits for the scheduler's next turn, the trainer too, whose core the worker takes that is dealt the
next batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from coresim.model.service import Service
from coresim.sim.run import Trace
from coresim.validate.costs import NOTHING, Cost
from coresim.validate.trial import Trial

#: What the maker does: it rests, it is in the second or first half of another batch, or it begins one right now.
MAKERS = ("rest", "late", "early", "now")
#: How many want a core for each there is, the trainer and the maker included: one at most, less than two, or more.
CROWDS = ("", ", shared", ", crowded")
STATES = tuple(maker + crowd for crowd, maker in product(CROWDS, MAKERS))
#: Hand-overs that must have been seen in a state before they stand for it.
LEAST_SEEN = 6
#: Values that a mixture has.
FINE = 200


class Made(NamedTuple):
    """A batch: when its worker began and had it, s."""

    worker: int
    began: float
    made: float


def seen(trial: Trial, workers: int, prefetch_factor: int, cpus: int) -> dict[str, list[float]]:
    """What receiving took beyond the trainer's own CPU time, s, by state.

    Args:
        trial: what happened; of an ordered loader with worker processes.
        workers: how many.
        prefetch_factor: batches out per worker.
        cpus: CPUs that it could use.
    """
    moments = [max(step.asked, step.ready) for step in trial.steps]
    batches: list[Made] = []
    for number, cost in enumerate(trial.costs):
        # A worker that has another batch to make begins it at once, whatever it then waits for: its own threads' lock.
        before, dealt = number - workers, number - workers * prefetch_factor
        began = max(batches[before].made, moments[dealt]) if dealt >= 0 else cost.began
        batches.append(Made(cost.worker, min(began, cost.made), cost.made))
    found: dict[str, list[float]] = {}
    for step, moment, (state, others) in zip(
        trial.steps, moments, _states(batches, list(enumerate(moments)), prefetch_factor, cpus), strict=True
    ):
        # That the trainer's own work takes longer on a shared core is modelled elsewhere.
        sharing = max(0.0, _load(others, cpus) - 1.0)
        found.setdefault(state, []).append(max(0.0, step.got - moment - step.cpu * (1.0 + sharing)))
    return found


def simulated(trace: Trace, warm_up: int, prefetch_factor: int, cpus: int) -> dict[str, float]:
    """The share of each state among the hand-overs of a simulated run; the first ``warm_up`` do not count."""
    batches = [
        Made(-1 if worker is None else worker, _time(begin), _time(end))
        for worker, begin, end in zip(trace.server[0], trace.taken[0], trace.done[0], strict=True)
    ]
    picked = list(zip(trace.batch, map(float, trace.pick_up), strict=True))[warm_up:]
    # Out of order, one may be from beyond what the trace holds.
    found = [
        state
        for state, _ in _states(batches, [pick for pick in picked if pick[0] < len(batches)], prefetch_factor, cpus)
    ]
    return {state: found.count(state) / len(found) for state in dict.fromkeys(found)}


def _time(moment: float | None) -> float:
    return float("inf") if moment is None else float(moment)


def _states(
    batches: Sequence[Made], picked: Sequence[tuple[int, float]], prefetch_factor: int, cpus: int
) -> list[tuple[str, int]]:
    """Of each batch picked up, its number and when: the state of its hand-over, and how many others are at work."""
    spans: dict[int, list[tuple[float, float]]] = {}
    for batch in batches:
        spans.setdefault(batch.worker, []).append((batch.began, batch.made))
    for own in spans.values():
        own.sort()
    found = []
    for number, moment in picked:
        left = {worker: _left(own, moment) for worker, own in spans.items()}
        maker = batches[number].worker
        others = sum(share > 0 for worker, share in left.items() if worker != maker)
        # One that is dealt no batch but by this hand-over rests until then.
        now = moment == batches[number].made and prefetch_factor > 1
        what = "now" if now else "early" if left[maker] > 0.5 else "late" if left[maker] > 0 else "rest"
        load = _load(others, cpus)
        found.append((what + CROWDS[0 if load <= 1 else 1 if load < 2 else 2], others))
    return found


def _load(others: int, cpus: int) -> float:
    """How many want a core for each there is: the trainer, the maker, which makes a batch again, and the others."""
    return (others + 2) / cpus


def _left(spans: Sequence[tuple[float, float]], moment: float) -> float:
    """How much of the batch that a worker makes at that moment is left, as a share; 0 where it makes none."""
    place = bisect_left(spans, (moment,)) - 1
    if place < 0 or spans[place][1] <= moment:
        return 0.0
    began, made = spans[place]
    return min(1.0, (made - moment) / (made - began)) if made < float("inf") else 1.0


def mixture(costs: Mapping[str, Cost], shares: Mapping[str, float]) -> Cost:
    """The waiting when hand-overs are in those states, each in that share of the cases; shares sum up to 1."""
    values: list[float] = []
    uncertainty = 0.0
    for state, share in shares.items():
        cost = nearest(costs, state)
        ordered, count = sorted(cost.values), round(FINE * share)
        values += (ordered[int((place + 0.5) / count * len(ordered))] for place in range(count))
        uncertainty += share * cost.uncertainty
    return Cost(tuple(values), uncertainty) if values else NOTHING


def at_rest(costs: Mapping[str, Cost]) -> Service:
    """The waiting where the maker has nothing else to do, or in the state most like it that was seen."""
    return nearest(costs, MAKERS[0]).service()


def nearest(costs: Mapping[str, Cost], state: str) -> Cost:
    """The cost of a state, or of the most like it that was seen: as crowded, then with the maker as far."""

    def unlike(other: str) -> tuple[int, int]:
        (crowd, maker), (mine, own) = (divmod(STATES.index(name), len(MAKERS)) for name in (other, state))
        return abs(crowd - mine), abs(maker - own)

    return costs[min(costs, key=unlike)] if costs else NOTHING

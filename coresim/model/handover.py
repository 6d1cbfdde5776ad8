"""The hand-over: how long a trainer waits for a batch that a worker process has made, beyond its own CPU time.

A worker process sends a batch as handles of shared memory, and the trainer asks this worker, the batch's *maker*, for
the memory behind them. The wait depends on three things at the pick-up. First, was the batch there before? If the
trainer waited for it, its maker sends it now, which may copy all of it. Second, does the maker make another batch? Then
its threads that send wait for the interpreter's lock. Third, how crowded are the cores? If no core is free, a process
that wakes waits for the scheduler's next turn.

Where a thread of the trainer's process pins, the trainer takes batches from that thread. Then one thing counts: is the
batch pinned when the trainer asks for it (``rest``), or does the trainer sleep until it is (``begin``)? A thread
that is woken waits for a core if no core is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coresim.model.keys import key
from coresim.model.service import SERVICE, ZERO, Service

#: What the maker does. It finished the batch earlier, and rests or is at work on another one; or it finished the batch
#: right now, and begins another one or only sends. Of a pinned batch: it is there (``rest``), or the trainer waits for
#: it (``begin``).
MAKERS = ("rest", "begin", "work", "send")
#: What the maker does when the trainer has waited for the batch.
AWAITED = ("begin", "send")
#: How many tasks want each core, the trainer and the maker included: one at most, less than two, or more.
CROWDS = ("free", "shared", "crowded")
#: A state's number is that of its crowd times the number of `MAKERS`, plus that of its maker.
STATES = tuple(f"{maker}_{crowd}" for crowd in CROWDS for maker in MAKERS)

#: The states where a thread of the trainer's process makes the batches: see `Handover.of_threads`.
THREADS = ("thread_rest", "thread_begin")

#: How much longer a hand-over takes a trainer that has spun, if more tasks want a core than there are: it has used up
#: its share of the cores, and waits while others have their turns. Median and spread of the rounds of
#: ``calibration/probe_spinning.py`` with two and three workers on two CPUs.
AFTER_SPINNING = Service(0.00127, uncertainty=0.7)

#: The part of the trainer's CPU time for a batch that frees the batch before, assumed if it was not measured: the part
#: after the trainer has asked for the next index, the median of the rounds of ``calibration/probe_dispatch.py``. It
#: grows with the bytes of a batch: freeing is 0.05 to 0.96 of the time in ``calibration/probe_waited.py``.
RELEASE = 0.44

#: CPU seconds of a thread that begins to work after which the scheduler has evened out who shares a core with whom.
#: Until then it shares one with one other. From ``calibration/probe_turns.py``, two busy processes on two CPUs, for a
#: thread that slept; with one that spun all takes up to 15 % less time.
EVENED_OUT_S = 0.04

#: How far the time of a hand-over in a crowd that was not seen may be off, relative (`Handover.at_once`). Assumed: a
#: maker's work is only a part of it, and other workers want cores, too.
UNSEEN = 0.5

#: What stands for a state that is not known, the best first. Older profiles count makers that only send as ``rest``.
_LIKE = {
    "rest": ("rest", "work", "send", "begin"), "work": ("work", "rest", "begin", "send"),
    "begin": ("begin", "send", "work", "rest"), "send": ("send", "rest", "begin", "work"),
}  # fmt: skip
_REST = "the batch was there before and its maker rests, or it is pinned already"
_BEGIN = "the trainer waited for the batch and its maker begins another one, or it is pinned right now"
_WORK = "the batch was there before, and its maker is at work on another one"
_SEND = "the trainer waited for the batch, and its maker only sends it"
_READY = "a thread of the trainer's process had made the batch before"
_AWAITED = "the trainer waited for the batch, which such a thread has made right now"


def state_of(maker: str, others: int, cores: Any, ranks: int = 1) -> int:
    """The number of a hand-over's state.

    Args:
        maker: one of `MAKERS`.
        others: workers besides the maker that make a batch, on the whole host.
        cores: cores that all share.
        ranks: trainers on the host.
    """
    wanted = others + 1 + ranks
    crowd = 0 if wanted <= cores else 1 if wanted < 2 * cores else 2
    return len(MAKERS) * crowd + MAKERS.index(maker)


def resting(state: int) -> int:
    """The number of the state with the same crowd in which the maker rests."""
    return state - state % len(MAKERS)


def nearest(known: Iterable[str], state: str) -> str:
    """The known state that is most like this one: first by its maker, then by how crowded the cores are.

    Raises:
        ValueError: nothing is known.
    """

    def unlike(other: str) -> tuple[int, int]:
        (crowd, maker), (mine, own) = (divmod(STATES.index(name), len(MAKERS)) for name in (other, state))
        return _LIKE[MAKERS[own]].index(MAKERS[maker]), abs(crowd - mine)

    return min(known, key=unlike)


def _is_free(state: str) -> bool:
    """Whether cores are free in that state."""
    return state.endswith(CROWDS[0])


@dataclass(frozen=True)
class Handover:
    """``[workload.handover]``: waiting for a batch that is ready, by state; a state left out equals the nearest given.

    Times in seconds; the trainer holds no core meanwhile. Where several ranks share few cores, a state left out may
    take longer than the nearest given (`at_once`).
    """

    rest_free: Service | None = key(SERVICE, f"{_REST}; cores are free", None)
    begin_free: Service | None = key(SERVICE, f"{_BEGIN}; cores are free", None)
    work_free: Service | None = key(SERVICE, f"{_WORK}; cores are free", None)
    send_free: Service | None = key(SERVICE, f"{_SEND}; cores are free", None)
    rest_shared: Service | None = key(SERVICE, f"{_REST}; more want a core than there are", None)
    begin_shared: Service | None = key(SERVICE, f"{_BEGIN}; more want a core than there are", None)
    work_shared: Service | None = key(SERVICE, f"{_WORK}; more want a core than there are", None)
    send_shared: Service | None = key(SERVICE, f"{_SEND}; more want a core than there are", None)
    rest_crowded: Service | None = key(SERVICE, f"{_REST}; two or more want each core", None)
    begin_crowded: Service | None = key(SERVICE, f"{_BEGIN}; two or more want each core", None)
    work_crowded: Service | None = key(SERVICE, f"{_WORK}; two or more want each core", None)
    send_crowded: Service | None = key(SERVICE, f"{_SEND}; two or more want each core", None)
    thread_rest: Service | None = key(SERVICE, f"option 3: {_READY}; for the interpreter's lock", None)
    thread_begin: Service | None = key(SERVICE, f"option 3: {_AWAITED}; for the interpreter's lock", None)

    @property
    def known(self) -> dict[str, Service]:
        """The waiting in those of `STATES` that are given."""
        return {name: own for name in STATES if (own := getattr(self, name)) is not None}

    def services(self) -> tuple[Service, ...]:
        """The waiting in each of `STATES`; empty where none is known or all take no time."""
        known = self.known
        found = tuple(known[nearest(known, state)] for state in STATES) if known else ()
        return () if all(service.is_zero for service in found) else found

    def of_threads(self) -> tuple[Service, ...]:
        """The same if threads of the trainer's process make the batches: its wait for the interpreter's lock.

        It does not depend on how crowded the cores are. If one of the two is not known, it equals the other.
        """
        rest, begin = self.thread_rest or self.thread_begin, self.thread_begin or self.thread_rest
        if rest is None or begin is None or (rest.is_zero and begin.is_zero):
            return ()
        return tuple(begin if state.partition("_")[0] in AWAITED else rest for state in STATES)

    def at_once(self, ranks: int, cores: float) -> Handover:
        """The waiting of ``ranks`` trainers that share ``cores`` and that a barrier lets go at the same instant.

        A hand-over is work of the maker's threads and of the trainer. n equal tasks that begin at once and share cores
        in equal parts all end after n / cores times their own time, if that is above 1; n counts the trainers and one
        maker. An unknown state takes that much longer than the known state most like it, if cores were free in the
        known one: a calibration of one rank whose samples wait sees no other. ``calibration/ranks-met.note.md`` has
        trials; none of them pins or has a quota.
        """
        crowd, known = (ranks + 1) / cores, self.known
        if ranks == 1 or crowd <= 1.0 or not known:
            return self
        like = {state: nearest(known, state) for state in STATES}
        return replace(self, **{
            state: known[one].scaled(crowd, UNSEEN) if _is_free(one) and not _is_free(state) else known[one]
            for state, one in like.items()
        })  # fmt: skip


NO_HANDOVER = Handover()


def after_spinning(services: Sequence[Service]) -> tuple[Service, ...]:
    """The wait of a trainer that spins for the device in each of `STATES`, if any; ``services``: of one that sleeps.

    A trainer that had to wait for the batch has slept, because its maker finished it only at this instant.
    """
    return tuple(
        one.longer(AFTER_SPINNING) if number >= len(MAKERS) and MAKERS[number % len(MAKERS)] not in AWAITED else one
        for number, one in enumerate(services)
    )


def usual(handover: Handover) -> Service:
    """The waiting where the batch was there, its maker rests and cores are free, or in the known state most like it."""
    return (handover.services() or (ZERO,))[0]

"""The measuring discipline, with a clock and work whose true cost is known: results are exact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresim.measure import protocol
from coresim.measure.protocol import Clocks, Timing
from coresim.model.warning import HostWarning

# Powers of two, so that sums and quotients of the fake times are exact.
MS = 2.0**-10


class Machine:
    """A clock that only work moves: some of the time on the core, some waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self.used = 0.0

    @property
    def clock(self) -> Clocks:
        return Clocks(lambda: self.now, lambda: self.used)

    def work(self, cpu: float, wait: float = 0.0) -> None:
        self.now += cpu + wait
        self.used += cpu

    def series(self, costs: Iterable[float]) -> Callable[[], None]:
        left = iter(costs)
        return lambda: self.work(next(left))


def test_one_value_is_the_true_cost() -> None:
    machine = Machine()
    timing = protocol.timed(lambda: machine.work(3 * MS, wait=MS), machine.clock)
    assert timing == Timing(wall=4 * MS, cpu=3 * MS)
    assert timing.waited == MS


def test_a_pass_over_one_and_a_half_times_the_fastest_is_left_out() -> None:
    repeats = [Timing(3.0, 3.0), Timing(4.5, 4.5), Timing(4.6, 4.6)]
    assert protocol.clean(repeats) == repeats[:2]
    assert protocol.clean([Timing(3.0, 3.0), Timing(3.0, 3.0), Timing(30.0, 30.0)]) == [Timing(3.0, 3.0)] * 2


def test_a_repeat_that_lost_the_core_is_left_out_but_work_that_always_waits_is_kept() -> None:
    lost_the_core = Timing(wall=1.2, cpu=1.0)
    assert protocol.clean([Timing(1.0, 1.0), lost_the_core]) == [Timing(1.0, 1.0)]
    reads = [Timing(wall=1.0, cpu=0.1), Timing(wall=1.05, cpu=0.1)]
    assert protocol.clean(reads) == reads


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(0, 1)), min_size=1, max_size=9))
def test_something_clean_is_always_left_and_never_a_disturbance(pairs: list[tuple[float, float]]) -> None:
    repeats = [Timing(wall, wall * share) for wall, share in pairs]
    kept = protocol.clean(repeats)
    fastest = min(repeat.wall for repeat in repeats)
    assert kept
    assert all(repeat in repeats and repeat.wall <= 1.5 * fastest for repeat in kept)


def test_a_warning_names_what_value_and_remedy_where_more_than_a_tenth_was_disturbed() -> None:
    warnings: list[HostWarning] = []
    most = [Timing(1.0, 1.0)] * 9 + [Timing(9.0, 9.0)]
    assert protocol.cleaned([most], "x", warnings) == [most[:9]] and warnings == []
    some = [Timing(1.0, 1.0), Timing(9.0, 9.0)]
    assert protocol.cleaned([most, some], "x", warnings) == [most[:9], some[:1]]
    [dirty] = warnings
    assert dirty.what.startswith("x: ") and "2 of 12" in dirty.value and dirty.remedy


def test_others_are_what_the_machine_did_beyond_this_process_and_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 9 busy CPU seconds in 4 s, this process had 2, its children that ended 1, and the sampler 2."""
    now = {"wall": 10.0, "busy": 100.0, "own": (3.0, 1.0, 0.0, 0.0, 10.0), "sampled": 5.0}
    monkeypatch.setattr(protocol, "time", SimpleNamespace(perf_counter=lambda: now["wall"]))
    monkeypatch.setattr(protocol, "busy_seconds", lambda: now["busy"])
    monkeypatch.setattr(os, "times", lambda: now["own"])
    others = protocol.others_meter(lambda: now["sampled"])
    now |= {"wall": 14.0, "busy": 109.0, "own": (4.0, 2.0, 0.5, 0.5, 14.0), "sampled": 7.0}
    assert others() == 1.0
    now |= {"busy": 104.0}  # clocks of different grain may say that this process did more than the machine
    assert others() == 0.0

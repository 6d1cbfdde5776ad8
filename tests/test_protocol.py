"""The measuring discipline, with a clock and work whose true cost is known: results are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from coresim.measuring.transport import Shape, fit_costs, time_handover
from coresim.measuring.visits import MOST_PASSES, RowTimer
from hypothesis import given
from hypothesis import strategies as st

from coresim.measuring import protocol
from coresim.measuring.protocol import Clock, Timing
from coresim.model.measurement import Measurement
from coresim.workloads.base import Step, Workload

# Powers of two, so that sums and quotients of the fake times are exact.
MS = 2.0**-10


class Machine:
    """A clock that only work moves: some of the time on the core, some waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self.used = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.used)

    def work(self, cpu: float, wait: float = 0.0) -> None:
        self.now += cpu + wait
        self.used += cpu

    def series(self, costs: Iterable[float]) -> Callable[[], None]:
        left = iter(costs)
        return lambda: self.work(next(left))


def test_one_value_is_the_true_cost_per_loop() -> None:
    machine = Machine()
    timing = protocol.timed(lambda: machine.work(3 * MS, wait=MS), machine.clock, loops=8)
    assert timing == Timing(wall=4 * MS, cpu=24 * MS / 8)
    assert timing.waited == MS


@pytest.mark.parametrize(("least", "loops"), [(0.0, 1), (MS, 1), (1.5 * MS, 2), (5 * MS, 8), (8 * MS, 8)])
def test_loops_are_the_fewest_that_last_long_enough(least: float, loops: int) -> None:
    machine = Machine()
    assert protocol.calibrate(lambda: machine.work(MS), machine.clock, least) == loops


def test_work_without_a_cost_does_not_loop_for_ever() -> None:
    machine = Machine()
    machine_clock = Clock(lambda: machine.now, lambda: machine.used)
    assert protocol.calibrate(lambda: None, machine_clock, MS) == 2**20


def test_warm_up_ends_at_the_first_window_that_is_no_faster() -> None:
    machine = Machine()
    slow_start = [8.0, 4.0, 2.0] + [1.0] * 20
    # Medians of neighbouring windows of three: 4 and 1 (6 passes), 2 and 1 (7), 1 and 1 (8).
    assert protocol.warm_up(machine.series(slow_start), machine.clock, budget=1e9) == 8
    assert protocol.warm_up(Machine().series([1.0] * 9), machine.clock, budget=1e9) == 6


def test_warm_up_of_ever_faster_work_is_bounded_by_passes_and_by_time() -> None:
    machine = Machine()
    faster = machine.series(0.9**n for n in range(1000))
    assert protocol.warm_up(faster, machine.clock, budget=1e9) == protocol.WARM_MOST
    slow = machine.series(100 * 0.9**n for n in range(1000))
    assert protocol.warm_up(slow, machine.clock, budget=150.0) == 2


def test_a_pass_over_one_and_a_half_times_the_fastest_is_left_out() -> None:
    repeats = [Timing(3.0, 3.0), Timing(4.5, 4.5), Timing(4.6, 4.6)]
    assert protocol.clean(repeats) == repeats[:2]
    assert protocol.undisturbed([Timing(3.0, 3.0), Timing(3.0, 3.0), Timing(30.0, 30.0)]) == 3.0


def test_a_repeat_that_lost_the_core_is_left_out_but_work_that_always_waits_is_kept() -> None:
    lost_the_core = Timing(wall=1.2, cpu=1.0)
    assert protocol.clean([Timing(1.0, 1.0), lost_the_core]) == [Timing(1.0, 1.0)]
    reads = [Timing(wall=1.0, cpu=0.1), Timing(wall=1.05, cpu=0.1)]
    assert protocol.clean(reads) == reads


def test_the_clocks_own_error_is_tolerated() -> None:
    repeats = [Timing(1.0, 1.0), Timing(1.2, 1.0)]
    assert protocol.clean(repeats, tolerance=0.11) == repeats


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(0, 1)), min_size=1, max_size=9))
def test_something_clean_is_always_left_and_never_a_disturbance(pairs: list[tuple[float, float]]) -> None:
    repeats = [Timing(wall, wall * share) for wall, share in pairs]
    kept = protocol.clean(repeats)
    fastest = min(repeat.wall for repeat in repeats)
    assert kept
    assert all(repeat in repeats and repeat.wall <= 1.5 * fastest for repeat in kept)


def test_cautions_name_what_value_and_remedy() -> None:
    assert protocol.dirty_caution("x", 1, 10) == []
    [dirty] = protocol.dirty_caution("x", 2, 10)
    assert "2 of 10" in dirty.value
    assert protocol.busy_caution(0.1, 4) == []
    [busy] = protocol.busy_caution(0.5, 4)
    assert busy.value == "2.0 of 4 CPUs busy" and busy.remedy


def test_unsteady_processes_are_told_and_steady_ones_are_not() -> None:
    def of(*means: float) -> Measurement:
        return Measurement("prepare.x", "s/sample", tuple((mean,) for mean in means), "")

    assert protocol.steadiness(of(1.0, 1.05, 0.95)) == []
    assert protocol.steadiness(of(1.0)) == []
    assert [c.value for c in protocol.steadiness(of(0.8, 1.0, 1.2))] == ["deviation 20%"]
    assert [c.value for c in protocol.steadiness(of(1.0, 1.0, 1.0, 9.0))][1:] == [
        "0.33 of the mean",
        "3.00 of the mean",
    ]


class FakeWork(Workload):
    """Steps of known cost: fetching sample i waits i + 1 ms, decoding uses 2 (i + 1) ms of the core."""

    batch_size = 4

    def __init__(self, machine: Machine, disturb: Callable[[int], tuple[float, float]] = lambda call: (0, 0)) -> None:
        super().__init__(Path())
        self.machine, self.disturb, self.calls = machine, disturb, 0

    def __len__(self) -> int:
        return 12

    def steps(self) -> tuple[Step, ...]:
        return Step("fetch", self._fetch), Step("decode", self._decode)

    def collate(self, samples: list[int]) -> int:
        assert len(samples) == self.batch_size
        self.machine.work(64 * MS)
        return 0

    def _fetch(self, index: int, _: np.random.Generator) -> int:
        self.machine.work(0.0, wait=(index + 1) * MS)
        return index

    def _decode(self, index: int, _: np.random.Generator) -> int:
        self.calls += 1
        cpu, wait = self.disturb(self.calls)
        self.machine.work(2 * (index + 1) * MS + cpu, wait)
        return index


def rows_of(work: FakeWork, budget: float) -> tuple[list[int], RowTimer]:
    order: list[int] = []
    return order, RowTimer(work, work.machine.clock, 7, budget, lambda index, used: order.append(index))


def test_rows_are_the_true_costs_of_the_same_visits() -> None:
    order, timer = rows_of(FakeWork(Machine()), budget=1e6)
    rows = timer.run()
    visits = order[1:13]
    assert sorted(visits) == list(range(12))
    assert order[1:] == visits * MOST_PASSES
    assert rows.values("fetch") == tuple((i + 1) * MS for i in visits)
    assert rows.values("decode") == tuple(2 * (i + 1) * MS for i in visits)
    assert [timing.wall for timing in rows.collates] == [64 * MS] * MOST_PASSES
    assert rows.counts() == (0, 2 * 12 * MOST_PASSES)


@pytest.mark.parametrize("disturbance", [(1024 * MS, 0.0), (0.0, 1024 * MS)], ids=["slow", "lost the core"])
def test_disturbed_repeats_leave_no_trace_in_the_values(disturbance: tuple[float, float]) -> None:
    work = FakeWork(Machine(), lambda call: disturbance if call % 5 == 0 else (0.0, 0.0))
    order, timer = rows_of(work, budget=1e6)
    rows = timer.run()
    assert rows.values("decode") == tuple(2 * (i + 1) * MS for i in order[1:13])
    dirty, total = rows.counts()
    assert dirty == pytest.approx(12 * MOST_PASSES / 5, abs=1) and total == 2 * 12 * MOST_PASSES


def test_a_small_budget_gives_fewer_visits_but_two_passes_of_four() -> None:
    # At most 3 (11 + 1) ms per visit: seven visits, a batch and the warm-up are within 1.5 budgets.
    order, timer = rows_of(FakeWork(Machine()), budget=300 * MS)
    rows = timer.run()
    assert 4 <= len(rows.values("fetch")) < 12
    assert order[1:] == order[1 : 1 + len(rows.values("fetch"))] * 2


def test_samples_that_are_far_too_slow_for_the_budget_are_visited_once() -> None:
    order, timer = rows_of(FakeWork(Machine()), budget=MS)
    rows = timer.run()
    assert len(rows.values("fetch")) == 1 and len(order) == 2


def test_a_stream_is_visited_once_and_never_repeated() -> None:
    work = FakeWork(Machine())
    work.repeatable = False
    order, timer = rows_of(work, budget=1e6)
    timer.run()
    assert len(order) == 1 + 12


def test_short_steps_are_looped_until_the_timer_can_tell() -> None:
    work = FakeWork(Machine())
    clock = Clock(work.machine.clock.wall, work.machine.clock.cpu, wall_tick=MS)
    rows = RowTimer(work, clock, 7, 1e6, lambda index, used: None).run()
    assert sorted(rows.values("decode")) == [2 * (i + 1) * MS for i in range(12)]
    assert work.calls > 5 * 12 * MOST_PASSES


def test_handover_counts_neither_the_waiting_for_a_batch_nor_the_first_nor_a_disturbance() -> None:
    machine = Machine()
    costs = iter([100.0, 2.0, 2.0, 50.0, *[2.0] * 30])
    found = time_handover(
        lambda: machine.work(next(costs), wait=1.0), lambda: machine.work(0, wait=50.0), machine.clock, budget=0.0
    )
    assert found.cpu == [2.0, 2.0, 2.0]  # one of four was disturbed
    assert found.wall == [3.0, 3.0, 3.0]


def test_transport_costs_are_separated_exactly() -> None:
    shapes = [Shape(1000, 1), Shape(1000, 16), Shape(10**7, 1), Shape(5 * 10**6, 4)]
    seconds = [1e-4 + 2e-5 * shape.tensors + 1e-10 * shape.size for shape in shapes]
    assert fit_costs(shapes, seconds) == pytest.approx((1e-4, 2e-5, 1e-10))


def test_a_transport_cost_is_never_negative() -> None:
    costs = fit_costs([Shape(1000, 1), Shape(1000, 16), Shape(10**7, 1)], [3e-4, 2e-4, 1e-4])
    assert min(costs) == 0.0 and max(costs) > 0.0

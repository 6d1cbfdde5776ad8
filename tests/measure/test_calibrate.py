"""A calibration of a loader whose costs are made up: rounds, what each batch is taken for, and what comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from line import InlinePipe, Line, LinePipe, bench_of  # noqa: F401 (a fixture)

from coresim.errors import InputError
from coresim.measure import calibrate as module
from coresim.measure.calibrate import ROUNDS, calibrate, worker_counts
from coresim.measure.campaign import QUICK_BUDGET, SHARES
from coresim.measure.costs import measurements
from coresim.measure.pacing import COLD, DRAINED, FIRST, PACED, PACED_STEP, PAUSE, RATIOS, RESTED, STREAM, STREAMED
from coresim.measure.subject import Subject
from coresim.measure.trust import warnings_of
from coresim.model.handover import STATES

Make = Callable[..., Line]


def named(found: module.Calibration) -> dict[str, Any]:
    return {measurement.name: measurement for measurement in measurements(found)}


def means(found: module.Calibration) -> dict[str, float]:
    return {name: measurement.mean for name, measurement in named(found).items()}


def test_made_up_costs_are_found_again(bench_of: Make) -> None:  # noqa: F811
    found = calibrate(bench_of(cpus=2, slower=lambda workers: {1: 1.0, 2: 1.25}.get(workers, 2.0)), budget_s=60.0)
    made = means(found)
    assert made["prepare.sample"] == pytest.approx(0.01)
    assert made["prepare.collate"] == pytest.approx(0.02)
    assert made["prepare.send"] == pytest.approx(0.005)
    assert made["receive.cpu"] == pytest.approx(0.001) and made["receive.cpu.2"] == pytest.approx(0.001)
    assert made["receive.rest_free"] == pytest.approx(0.002)
    assert made["scaling.2"] / made["scaling.1"] == pytest.approx(1.25)
    assert made["worker.start"] == pytest.approx(0.01) and made["worker.first"] == pytest.approx(0.3)
    assert made["machine.speed"] == 1.0 and "prepare.wait" not in made
    assert found.sampled == pytest.approx(0.02) and found.batch_facts == (80, 1)
    assert warnings_of(found) == []


def test_a_trainer_that_reads_maps_every_batch(bench_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    read: list[Any] = []
    monkeypatch.setattr(module, "touch", read.append)
    plain = calibrate(bench_of(cpus=2), budget_s=6.0)
    assert not read and not any(run.pages for run in plain.runs) and "receive.pages" not in named(plain)
    found = calibrate(bench_of(cpus=2), budget_s=6.0, reads=True)
    # With the batch of the warm-up.
    assert all(len(run.pages) == len(run.trial.steps) + 1 for run in found.runs) and read
    assert named(found)["receive.pages"].unit == "s/batch"


def test_what_few_workers_show_of_batches_that_are_pickled_holds_for_many(bench_of: Make) -> None:  # noqa: F811
    """A worker makes a batch in 3 ms and pickles it in 10 ms, which the trainer of many workers never waits for."""
    made_up: dict[str, Any] = {"sample": lambda call: 0.0005, "collate": lambda call: 0.001, "send": 0.0, "first": 0.0}
    line = bench_of(cpus=8, receive=0.002, handover=0.001, pickling=0.010, **made_up)
    found = calibrate(line, budget_s=60.0, counts=(1, 2))
    made = means(found)
    # One worker gives a batch in 13 ms and two of them one in 6.5 ms, for they pickle at once; many give one in 3 ms.
    waits = [made[name] for name in ("receive.rest_free", "receive.work_free") if name in made]
    # Of the first batch after the warm-up it is not known when the one before was read.
    assert waits == pytest.approx([0.001] * len(waits), rel=0.02) and waits
    assert [made["receive.cpu"], made["receive.cpu.2"]] == pytest.approx([0.002, 0.002])
    # No worker sends more than one in 10 ms.
    assert 4 * made["prepare.sample"] + made["prepare.collate"] + made["prepare.send"] >= 0.010
    (told,) = warnings_of(found)
    assert told.what == "batches are pickled through a pipe" and told.value.startswith("1 MB each, 10 ms to pickle")
    assert "tensors" in told.remedy


def test_a_loader_that_runs_with_no_fewer_workers_than_a_crowd_is_measured_with_it(bench_of: Make) -> None:  # noqa: F811
    line = bench_of(cpus=2, others=lambda run: 0.5 if run == 1 else 0.0)
    found = calibrate(line, budget_s=60.0, counts=(5,))
    # The second run was disturbed, and another was made instead.
    assert [run.workers for run in found.runs] == [5] * (ROUNDS + 1)
    made = means(found)
    assert made["prepare.sample"] == pytest.approx(0.01)
    assert made["scaling.5"] == pytest.approx(0.01 + 0.02 / 4)  # with its part of the collation
    assert made["receive.cpu.5"] == pytest.approx(0.001) and made["worker.start"] == pytest.approx(0.01)


def test_at_least_three_rounds_of_newly_started_workers_stand_behind_every_cost(bench_of: Make) -> None:  # noqa: F811
    line = bench_of(cpus=2)
    found = calibrate(line, budget_s=60.0, seed=40)
    # 1, 2 and 3 workers by turns, three times over; each round has an order of samples of its own.
    assert line.bench.opened == [(workers, 40 + number) for number in range(ROUNDS) for workers in (1, 2, 3)]
    assert line.bench.closed == len(line.bench.opened)
    # The trainer prepares by itself in a fork, once more often: what its first run takes of memory, it has then.
    assert [(run.workers, run.round) for run in found.inline] == [(0, number + 1) for number in range(ROUNDS)]
    # A state of hand-overs may come up in some rounds alone.
    rounds = {
        name: len(cost.values) for name, cost in named(found).items() if name.removeprefix("receive.") not in STATES
    }
    assert len(rounds) > 10 and set(rounds.values()) == {3}
    once = calibrate(bench_of(cpus=2), budget_s=60.0, rounds=1, counts=(2,))
    assert [run.workers for run in once.runs] == [2]


def test_a_first_look_has_steps_too(bench_of: Make) -> None:  # noqa: F811
    """What `--quick` leaves of its time for the loader is enough for all that a run is for, where batches are quick."""
    line = bench_of(cpus=2, first=0.01, sample=lambda call: 0.001, collate=lambda call: 0.002)
    found = calibrate(line, budget_s=SHARES["loader"] * QUICK_BUDGET)
    assert all({STREAMED, PACED_STEP, RESTED, DRAINED} <= set(run.kinds) for run in found.runs)
    assert line.bench.works.now < 1.3 * SHARES["loader"] * QUICK_BUDGET


def test_more_of_a_run_has_steps_than_none(bench_of: Make) -> None:  # noqa: F811
    run = calibrate(bench_of(cpus=2), budget_s=60.0, counts=(1,)).runs[0]
    ends = [step.end for step in run.trial.steps]
    streamed, paced = (
        [end for end, of in zip(ends, run.kinds, strict=True) if of == kind] for kind in (STREAMED, PACED_STEP)
    )
    shares = [(found[-1] - found[0]) / 20.0 for found in (streamed, paced)]
    assert shares == pytest.approx([STREAM, PACED], abs=0.03)


def test_what_collating_takes_in_the_trainer_is_measured_apart(bench_of: Make) -> None:  # noqa: F811
    """A worker collates into new shared memory, which may take ten times as long."""
    made = means(calibrate(bench_of(cpus=2, inline=0.002), budget_s=60.0))
    assert made["inline.collate"] == pytest.approx(0.002) and made["prepare.collate"] == pytest.approx(0.02)
    # Few batches fit into a run: not for that, and not where the numbers of workers are given.
    slow = calibrate(bench_of(cpus=2, sample=lambda call: 1.0), budget_s=12.0)
    given = calibrate(bench_of(cpus=2), budget_s=60.0, counts=(1, 2))
    assert slow.inline == given.inline == ()


def test_a_data_set_that_needs_a_worker_is_measured_without_a_trainer_that_prepares(
    bench_of: Make,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def next_batch(self: InlinePipe) -> None:
        raise InputError("no worker info")

    monkeypatch.setattr(InlinePipe, "next", next_batch)
    line = bench_of(cpus=2)
    found = calibrate(line, budget_s=60.0)
    assert found.inline == () and "inline.collate" not in named(found) and line.bench.closed == len(line.bench.opened)


def test_first_calls_are_apart_from_later_ones(bench_of: Make) -> None:  # noqa: F811
    """A collation whose first call imports for a hundred times as long, and a sample that connects."""
    line = bench_of(
        cpus=1, collate=lambda call: 2.0 if call == 0 else 0.02, sample=lambda call: 0.5 if call == 0 else 0.01
    )
    made = named(calibrate(line, budget_s=60.0))
    assert max(made["prepare.collate"].flat) == pytest.approx(0.02)
    assert max(made["prepare.sample"].flat) == pytest.approx(0.01)
    assert max(made["scaling.1"].flat) == pytest.approx(0.01 + 0.02 / 4)
    assert max(made["prepare.send"].flat) == pytest.approx(0.005)
    # They are in what a new worker costs: 0.3 s to start, 4 times 0.49 s and 1.98 s more than usual.
    assert made["worker.first"].mean == pytest.approx(0.3 + 4 * 0.49 + 1.98)


def test_each_batch_is_taken_for_something(bench_of: Make) -> None:  # noqa: F811
    found = calibrate(bench_of(cpus=2), budget_s=60.0, counts=(2,))
    paces = set()
    for run in found.runs:
        kinds = [kind for kind, _ in Counter(run.kinds).items()]
        assert kinds == [FIRST, COLD, STREAMED, PACED_STEP, RESTED, DRAINED]
        assert len(run.kinds) == len(run.trial.steps)
        assert (run.kinds.count(FIRST), run.kinds.count(COLD)) == (1, 4)  # and the very first, of warm-up
        assert run.kinds.count(DRAINED) == 4
        by_kind = {kind: [s.end - s.start for s, of in zip(run.trial.steps, run.kinds, strict=True) if of == kind]
                   for kind in kinds}  # fmt: skip
        assert set(by_kind[STREAMED]) == set(by_kind[DRAINED]) == {0.0}
        # Steps shorter and longer than the two workers need for a batch; pauses longer than one needs for its own.
        steps = {kind: list(dict.fromkeys(round(value, 9) for value in by_kind[kind])) for kind in kinds}
        paced, (pause,) = steps[PACED_STEP], steps[RESTED]
        paces.add(tuple(paced))
        assert pause > 0.065
        assert paced == pytest.approx([ratio * pause / 2 / PAUSE for ratio in RATIOS[run.round]])
    assert len(paces) == ROUNDS  # other ones in each round, so that hand-overs are seen in every state


@pytest.mark.parametrize("later", [1.0, 4.0])
def test_a_calibration_keeps_to_its_time(bench_of: Make, later: float) -> None:  # noqa: F811
    """Also where the first few batches, from which the time of the others was once taken, are the quickest."""
    for budget in (12.0, 60.0):
        line = bench_of(cpus=2, sample=lambda call: 0.01 if call < 20 else later * 0.01)
        calibrate(line, budget_s=budget)
        assert 0.8 * budget < line.bench.works.now < 1.5 * budget


@pytest.mark.parametrize("workers", [1, 2])
def test_of_slow_batches_a_few_are_enough(bench_of: Make, workers: int) -> None:  # noqa: F811
    """A batch takes 42 s, and all runs together may take one."""
    line = bench_of(cpus=2, sample=lambda call: 10.0, collate=lambda call: 2.0)
    made = named(calibrate(line, budget_s=1.0, counts=(workers,)))
    # Those that are out when the loader starts, two of each worker; how slow they are is known after the first run.
    assert line.bench.taken[1:] == [2 * workers] * 2 if workers == 1 else [3 * workers] * 2
    assert line.bench.taken[0] == 3 * workers
    assert made["prepare.sample"].mean == pytest.approx(10.0) and made["prepare.collate"].mean == pytest.approx(2.0)
    assert len(made["prepare.sample"].values) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_slow_batches_of_threads_are_told_by_each(
    bench_of: Make,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    """Stages in threads have no last batch to run to."""
    line = bench_of(cpus=2, sample=lambda call: 10.0, collate=lambda call: 2.0)
    line.threads = True
    monkeypatch.setattr(LinePipe, "stop", lambda self: 0)
    made = named(calibrate(line, budget_s=1.0, counts=(workers,)))
    assert all(taken >= 2 * workers for taken in line.bench.taken)
    assert made["prepare.sample"].mean == pytest.approx(10.0)
    assert made[f"scaling.{workers}"].mean == pytest.approx(10.0 + 2.0 / 4)


def test_runs_that_others_disturbed_are_made_again_and_do_not_count(bench_of: Make) -> None:  # noqa: F811
    """Beside half a core of others', in the second round, work takes twice as long."""
    line = bench_of(cpus=2, others=lambda run: 0.5 if run == 1 else 0.0)
    line.bench.made.slower = lambda workers: 2.0 if len(line.bench.opened) == 2 else 1.0
    found = calibrate(line, budget_s=60.0, counts=(1,))
    assert [run.round for run in found.runs] == [0, 1, 2, 3]
    assert [found.disturbed(run) for run in found.runs] == [False, True, False, False]
    assert found.runs[1].others == pytest.approx(0.5, rel=0.1)
    assert means(found)["prepare.sample"] == pytest.approx(0.01)
    assert len(named(found)["prepare.sample"].values) == 3


def test_slow_batches_on_a_busy_machine_do_not_take_twice_their_time(bench_of: Make) -> None:  # noqa: F811
    line = bench_of(cpus=2, sample=lambda call: 10.0, others=lambda run: 1.0)
    found = calibrate(line, budget_s=1.0)
    assert {run.round for run in found.runs} == set(range(ROUNDS))


def test_a_machine_that_is_never_quiet_is_measured_as_it_is_and_told(bench_of: Make) -> None:  # noqa: F811
    found = calibrate(bench_of(cpus=2, others=lambda run: 1.0), budget_s=60.0, counts=(1,))
    assert len(found.runs) == ROUNDS == len(named(found)["prepare.sample"].values)
    (told,) = warnings_of(found)
    assert told.what == "the machine was busy while costs were measured" and "1.0 cores" in told.value and told.remedy


def test_costs_are_told_at_the_usual_speed_beside_as_many_busy_cpus(bench_of: Make) -> None:  # noqa: F811
    """In the last round all takes half as long again, the sampler's work too; beside two workers it is slower."""
    line = bench_of(cpus=2)
    line.bench.made.slower = lambda workers: (1.5 if len(line.bench.opened) > 6 else 1.0) * (1.1 if workers > 1 else 1)
    line.bench.made.sampler_s = lambda run: (0.006 if run >= 6 else 0.004) * (1.2 if run % 3 else 1.0)
    found = calibrate(line, budget_s=60.0)
    usual = (1.0 + 1.0 + 1.5) / 3
    assert found.usual_sampler_s == pytest.approx({1: 0.004 * usual, 2: 0.0048 * usual, 3: 0.0048 * usual})
    made = named(found)
    assert [values[0] for values in made["prepare.sample"].values] == pytest.approx([0.01 * usual] * 3)
    # What crowding costs is not hidden in the sampler's time.
    assert made["scaling.2"].flat == pytest.approx((0.0165 * usual,) * 3)
    assert [values[0] for values in made["machine.speed"].values] == pytest.approx([usual, usual, usual / 1.5])
    assert [told.what for told in warnings_of(found)] == ["the machine changed its speed"]


def test_the_usual_time_is_a_mean_over_all_runs_with_as_many_busy_cpus(bench_of: Make) -> None:  # noqa: F811
    """On two CPUs two and three workers keep both busy; one run was made while the machine was paused."""
    line = bench_of(cpus=2, handover=0.1, receive=0.01)
    line.bench.made.sampler_s = lambda run: {1: 0.006, 2: 0.004, 4: 0.004, 5: 0.100, 7: 0.006, 8: 0.006}.get(run, 0.003)
    found = calibrate(line, budget_s=60.0)
    assert found.counts == (1, 2, 3)
    busy = (0.006 + 0.004 + 0.004 + 2.0 * 0.006 + 0.006 + 0.006) / 6
    assert found.usual_sampler_s == pytest.approx({1: 0.003, 2: busy, 3: busy})


@pytest.mark.parametrize(
    ("handover", "budget_s", "runs"), [(0.1, 60.0, (1, 2, 3)), (0.0, 60.0, (1, 2)), (0.1, 0.05, (1, 2))]
)
def test_a_crowd_is_run_only_where_it_is_notable_what_it_does_to_hand_overs(
    bench_of: Make,  # noqa: F811
    handover: float,
    budget_s: float,
    runs: tuple[int, ...],
) -> None:
    line = bench_of(cpus=2, handover=handover, receive=handover / 10)
    assert calibrate(line, budget_s=budget_s, rounds=1).counts == runs


@pytest.mark.parametrize(
    ("wait", "free", "crowd"),
    [
        (0.0, 1 << 40, None),  # nobody waits, and hand-overs cost nothing
        (0.01, 1 << 40, 5),  # half of a sample's time: five workers want two and a half cores
        (1.0, 1 << 40, module.MOST_WAITING),
        (1.0, 4 * 4 * 160, 4),  # a quarter of the memory holds the batches of four, 160 bytes each
        (1.0, 0, None),  # no room for more than the usual crowd, whose hand-overs cost nothing
    ],
)
def test_where_samples_wait_a_crowd_is_as_many_as_want_one_core_more_than_there_are(
    bench_of: Make,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    wait: float,
    free: int,
    crowd: int | None,
) -> None:
    monkeypatch.setattr(module.worker, "available_memory", lambda: 1 << 40)
    monkeypatch.setattr(module.worker, "shared_memory", lambda: (free, free))
    line = bench_of(cpus=2, sample=lambda call: 0.01, wait=wait, handover=0.0, receive=0.0)
    found = calibrate(line, budget_s=1500.0, rounds=2)
    assert found.counts == ((1, 2) if crowd is None else (1, 2, crowd))
    assert sum(run.workers == crowd for run in found.runs) == (0 if crowd is None else 2)


def test_a_crowd_is_decided_once_for_all_rounds(bench_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    free = iter([1 << 40])  # and then there is no room for any
    monkeypatch.setattr(module.worker, "available_memory", lambda: next(free, 0))
    monkeypatch.setattr(module.worker, "shared_memory", lambda: (1 << 40, 1 << 40))
    found = calibrate(bench_of(cpus=2, sample=lambda call: 0.01, wait=0.01, handover=0.0, receive=0.0), budget_s=1500.0)
    assert Counter(run.workers for run in found.runs) == {1: ROUNDS, 2: ROUNDS, 5: ROUNDS}


def test_a_crowd_is_no_larger_where_the_loader_may_not_run_with_more(bench_of: Make) -> None:  # noqa: F811
    line = bench_of(cpus=2, sample=lambda call: 0.01, wait=1.0, handover=1.0)
    assert calibrate(line, budget_s=1500.0, rounds=1, counts=(1, 2, 4)).counts == (1, 2, 4)
    line.samples = 0  # a stream, perhaps of few files
    assert calibrate(line, budget_s=1500.0, rounds=1).counts == (1, 2, 3)


def test_a_trainer_that_prepares_pins_nothing(bench_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """It does so in a fork, where no device can be used."""
    line, opened = bench_of(cpus=2), list[tuple[int, bool]]()
    usual = line.open

    def noted(layout: Any, seed: int) -> Any:
        opened.append((layout.workers, layout.pin_memory))
        return usual(layout, seed)

    monkeypatch.setattr(line, "open", noted)
    monkeypatch.setattr(module, "run_forked", lambda calls, name: [call() for call in calls])
    calibrate(line, budget_s=60.0, pin_memory=True)
    assert set(opened) == {(0, False), (1, True), (2, True), (3, True)}


def test_it_tells_how_far_it_is(bench_of: Make) -> None:  # noqa: F811
    told: list[float] = []
    line = bench_of(cpus=2)
    calibrate(line, budget_s=60.0, progress=told.append)
    assert told == sorted(told) and told[0] == 0.0 and 0.95 < told[-1] <= 1.0
    # A sign of life with every batch, and one before the trainer prepares by itself.
    assert len(told) == sum(line.bench.taken) + 1


def test_a_failure_ends_the_workers_and_is_told(bench_of: Make) -> None:  # noqa: F811
    def torn(call: int) -> float:
        if call == 5:
            raise InputError("torn")
        return 0.01

    line = bench_of(cpus=2, sample=torn)
    with pytest.raises(InputError, match="torn"):
        calibrate(line, budget_s=60.0)
    assert line.bench.closed == len(line.bench.opened) == 1


def test_threads_and_memory_of_workers_are_looked_at_while_they_run(
    bench_of: Make,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coresim.measure.worker import WorkerMemory

    line = bench_of(cpus=2)
    monkeypatch.setattr("line.LinePipe.pids", lambda pipe: tuple(range(100, 100 + pipe._workers)))
    monkeypatch.setattr(module.worker, "memory_of", lambda pid: None if pid == 101 else WorkerMemory(pid, 5))
    seen = iter(range(1000))
    monkeypatch.setattr(module.worker, "task_times", lambda pid: {"a": float(next(seen)), "b": 0.0, "c": 7.0})
    found = calibrate(line, budget_s=60.0, rounds=1, counts=(2,))
    assert found.runs[0].memory == (WorkerMemory(100, 5),)  # of a worker that has ended nothing is known
    assert found.runs[0].threads == (1, 1.0)


@pytest.mark.parametrize(
    ("cpus", "processes", "threads"),
    [
        (1, (1, 2), (1, 2)),
        (2, (1, 2, 3), (1, 2)),
        (6, (1, 2, 4, 6, 7), (1, 2, 4, 6)),
        (8, (1, 2, 4, 8, 9), (1, 2, 4, 8)),
    ],
)
def test_numbers_of_workers_double_up_to_the_cores_that_are_there(
    cpus: int, processes: tuple[int, ...], threads: tuple[int, ...]
) -> None:
    own: Any = SimpleNamespace(threads=True)
    assert (worker_counts(cpus, Subject()), worker_counts(cpus, own)) == (processes, threads)

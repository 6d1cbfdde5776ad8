"""From runs to measurements, by hand on made-up runs: what counts, in which unit, and what is warned of."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from kit import made_note

from coresim import stats
from coresim.measure import costs
from coresim.measure.calibrate import Calibration, CalibrationRun
from coresim.measure.costs import MOST_VALUES, measurements, usual_sampler_times
from coresim.measure.machine_speed import mean_sampler_s, shared_cv
from coresim.measure.notes import Note
from coresim.measure.pacing import COLD, DRAINED, FIRST, PACED_STEP, RESTED, STREAMED
from coresim.measure.subject import Subject
from coresim.measure.trial import TimedStep, Trial
from coresim.measure.trust import CONTRADICTION, contradiction, warnings_of
from coresim.measure.worker import WorkerMemory
from coresim.model.handover import STATES
from coresim.model.lock import longer
from coresim.model.measurement import Measurement

#: Of a run's eight batches: the very first, and what the others were taken for.
KINDS = (STREAMED, STREAMED, STREAMED, PACED_STEP, RESTED, DRAINED, DRAINED)


def subject(**other: Any) -> Subject:
    made = Subject()
    for name, value in {"loader": "a loader", "batch_size": 2, **other}.items():
        setattr(made, name, value)
    return made


def note(number: int, **other: Any) -> Note:
    """Of one worker that begins a batch of two samples each second: 0.3 s each, 0.2 s to collate, 0.2 s to send."""
    known: dict[str, Any] = {"wall": (0.3, 0.3), "cpu": (0.3, 0.3), "collate": 0.2}
    return made_note(float(number), number + 0.8, **(known | other))


def run(
    *notes: Note, workers: int = 1, round: int = 0, kinds: tuple[str, ...] = KINDS, receive: float = 0.01, **other: Any
) -> CalibrationRun:
    """The trainer asks before each batch is made, which takes ``receive`` to be handed over, all of it CPU time."""
    made = list(notes) or [note(number) for number in range(len(kinds) + 1)]
    steps = [
        TimedStep(n.made - 0.1, n.made, n.made + receive, n.made + receive, n.made + receive, receive) for n in made
    ]
    trial = Trial(steps[0].end, tuple(steps[1:]), tuple(made[1:]), (made[0],))
    known: dict[str, Any] = {"start_s": 0.05, "sampler_s": 1.0, "others": 0.0}
    return CalibrationRun(workers, round, trial, kinds, **(known | other))


def calibration(*runs: CalibrationRun, of: Subject | None = None, cpus: int = 2) -> Calibration:
    times = {one.workers: 1.0 for one in runs}
    return Calibration(of or subject(), runs, cpus, times, sampled=0.02)


def named(found: Calibration) -> dict[str, Measurement]:
    made = {measurement.name: measurement for measurement in measurements(found)}
    assert all(m.how and m.unit and m.values and all(m.values) for m in made.values())
    return made


def test_what_one_worker_s_later_batches_cost_is_the_cost() -> None:
    found = named(calibration(run(), run(round=1), run(round=2)))
    assert [found[name].unit for name in ("prepare.sample", "prepare.collate", "worker.start")] == [
        "s/sample", "s/batch", "s/worker",
    ]  # fmt: skip
    assert found["prepare.sample"].values == ((0.3,) * 14,) * 3
    assert found["prepare.collate"].values == ((0.2,) * 7,) * 3
    assert found["prepare.send"].flat == pytest.approx((0.2,) * len(found["prepare.send"].flat))
    assert found["receive.cpu"].values == ((0.01,) * 5,) * 3  # the last two were there already
    assert found["worker.start"].values == ((0.05,),) * 3
    assert "1 worker" in found["prepare.sample"].how and "a loader" in found["prepare.sample"].how


def test_what_a_worker_s_other_threads_do_to_send_counts_where_it_is_more() -> None:
    """All threads of the worker take 1.1 s of CPU time a batch: 0.3 s beyond its samples and collation."""
    found = named(calibration(run(*(note(n, process=1.1 * n) for n in range(8)))))
    assert found["prepare.send"].mean == pytest.approx(0.3)
    found = named(calibration(run(*(note(n, process=0.9 * n) for n in range(8)))))
    assert found["prepare.send"].mean == pytest.approx(0.2)  # the worker itself waits for them
    assert "prepare.send_overlap" not in found


def test_what_other_threads_send_meanwhile_is_a_share_where_a_core_was_free() -> None:
    """The worker itself has 0.2 s between batches, and all its threads take 0.3 s beyond samples and collation."""
    made = calibration(*(run(*(note(n, process=1.1 * n) for n in range(8)), round=number) for number in range(3)))
    assert named(made)["prepare.send_overlap"].mean == pytest.approx(1.0 / 3.0)
    assert "prepare.send_overlap" not in named(replace(made, cpus=1))
    # Not in every run, or too little to tell.
    assert "prepare.send_overlap" not in named(replace(made, runs=(*made.runs[:2], run(round=2))))
    little = calibration(*(run(*(note(n, process=1.002 * n) for n in range(8)), round=number) for number in range(3)))
    assert "prepare.send_overlap" not in named(little)


def test_time_that_no_process_of_the_job_had_is_lost_where_it_wanted_all_cpus() -> None:
    """Two workers on two CPUs have 0.9 of each, the trainer 0.01 s a batch of 0.5 s, and the sampler 0.02 of each."""
    notes = [note(n // 2, worker=n % 2, process=7.0 * (n % 2) + 0.9 * (n // 2)) for n in range(12)]
    kinds = (*(STREAMED,) * 9, DRAINED, DRAINED)
    full = run(*notes, workers=2, kinds=kinds)

    def thrice(one: CalibrationRun, rounds: int = 3, cpus: int = 2) -> dict[str, Measurement]:
        return named(calibration(*(replace(one, round=number) for number in range(rounds)), cpus=cpus))

    assert thrice(full)["cores.used"].process_means == pytest.approx([0.9 + 0.01 + 0.02] * 3)
    assert "cores.used" not in thrice(full, rounds=2)
    # A trainer that reads its batches, or whose thread pins them, has that time too: 0.05 s a batch of 0.5 s.
    reads = run(*notes, workers=2, kinds=kinds, pages=(0.05,) * 12)
    assert thrice(reads)["cores.used"].flat == pytest.approx([0.93 + 0.05] * 3)
    pinned = [one._replace(pinned=one.made + n / 100, pin_clock=0.05 * n) for n, one in enumerate(notes)]
    pins = thrice(run(*pinned, workers=2, kinds=kinds))
    assert pins["cores.used"].flat == pytest.approx([0.93 + 0.05] * 3)
    # One worker on two CPUs, more CPUs than workers, or one CPU: nobody wanted all of several.
    assert "cores.used" not in thrice(run())
    assert "cores.used" not in thrice(full, cpus=3)
    assert "cores.used" not in thrice(full, cpus=1)
    # Of workers whose samples wait, nobody knows what they wanted.
    waits = [one._replace(wall=(1.3, 1.3), queued=0.0, waited=0.0) for one in notes]
    assert "cores.used" not in thrice(run(*waits, workers=2, kinds=kinds))
    # Other programs had part of the time while a run was disturbed.
    assert "cores.used" not in thrice(replace(full, others=1.0))


def test_the_threads_of_several_workers_are_told_apart() -> None:
    """Batches alternate between two workers; all threads of one take 2.3 s a batch, 1.5 s beyond samples and collation.

    What its CPU time was when it began has nothing to do with the other's.
    """
    notes = [note(n, worker=n % 2, process=100.0 * (n % 2) + 2.3 * (n // 2)) for n in range(8)]
    found = named(calibration(run(*notes, workers=2), cpus=4))
    assert found["prepare.send"].mean == pytest.approx(1.5)


def test_a_trainer_that_prepares_takes_all_that_is_beyond_samples() -> None:
    alone = run(workers=0, receive=1.0)
    found = named(replace(calibration(run()), inline=(alone,)))
    assert found["inline.collate"].flat == pytest.approx((0.4,) * 7)


def test_first_batches_are_no_cost_but_a_start() -> None:
    slow = note(0, process=0.5, cpu=(1.0, 0.3), wall=(1.0, 0.3), collate=2.2)
    second = note(1, cpu=(9.0, 9.0), collate=9.0)  # of another worker's first batch
    made = run(slow, second, *(note(number) for number in range(2, 8)), kinds=(FIRST, *KINDS[1:]))
    found = named(calibration(made))
    assert max(found["prepare.sample"].flat) == 0.3 and max(found["prepare.collate"].flat) == 0.2
    # What starting took, and of the first batch what is more than the usual 0.8 s.
    assert found["worker.first"].flat == pytest.approx((0.5 + 3.5 - 0.8,))


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ({}, None),
        ({"began": 2.0, "made": 2.8}, 2.0),  # as a worker_init_fn that connects
        ({"made": 2.8, "wall": (2.3, 0.3)}, 2.0),  # as a first sample that does
        ({"made": 2.8}, None),  # it copied the batch into new memory
        ({"began": 2.0, "made": 2.8, "waited": None}, None),  # the system does not tell what was a queue
        ({"began": 2.0, "made": 2.8, "process": 1.0, "waited": 0.5}, 0.5),  # it worked, and queued for a core
        ({"began": 0.04, "made": 0.84}, None),
    ],
)
def test_what_a_new_worker_waits_without_a_core_is_told(first: dict[str, Any], told: float | None) -> None:
    """The trainer had started it at 0."""
    told_by_system = {"queued": 0.0, "waited": 0.0}
    notes = [note(0)._replace(**(told_by_system | first)), *(note(number) for number in range(1, 8))]
    found = named(calibration(run(*notes, started=0.0), run(*notes, started=0.0, round=1)))
    assert ("worker.wait" in found) == (told is not None)
    assert told is None or found["worker.wait"].values == (pytest.approx((told,)),) * 2
    once = named(calibration(run(*notes, started=0.0), run(started=0.0, round=1)))
    assert "worker.wait" not in once  # the other worker did not wait
    # Of several, all are started before the first one gets what to do: that is no wait.
    several = run(*notes, workers=2, started=2.0, start_s=2.0, kinds=(FIRST, *KINDS[1:]))
    assert "worker.wait" not in named(calibration(several))


def test_where_samples_wait_a_first_batch_that_waits_as_long_says_nothing_of_the_start() -> None:
    waits = {"wall": (1.3, 1.3), "cpu": (0.3, 0.3), "queued": 0.0, "waited": 0.0}
    notes = [note(n, **waits)._replace(made=n + 2.8) for n in range(8)]
    for more, told in ((0.0, False), (1.9, False), (2.2, True)):
        late = [notes[0]._replace(wall=(1.3 + more, 1.3)), *notes[1:]]
        assert ("worker.wait" in named(calibration(run(*late, started=0.0)))) == told


def test_costs_are_told_at_the_usual_speed_of_the_machine() -> None:
    slow = [note(n, cpu=(0.6, 0.6), collate=0.4) for n in range(8)]
    found = named(calibration(run(), run(*slow, round=1, sampler_s=2.0, receive=0.02)))
    for name, value in (("prepare.sample", 0.3), ("prepare.collate", 0.2), ("receive.cpu", 0.01), ("scaling.1", 0.4)):
        assert found[name].process_means == pytest.approx((value, value))
    assert found["machine.speed"].values == ((1.0,), (0.5,))
    assert found["worker.start"].flat == (0.05, 0.05)  # wall seconds


def test_turns_of_other_programs_are_no_waiting_of_samples() -> None:
    """Each sample takes 0.3 s of CPU time and 0.6 s without a core, of which a batch spends 0.9 s on the run queue."""
    waits = {"wall": (0.9, 0.9), "cpu": (0.3, 0.3)}
    found = named(calibration(run(*(note(n, queued=0.9, **waits) for n in range(8)))))
    assert found["prepare.wait"].values == (pytest.approx((0.15,) * 14),)
    found = named(calibration(run(*(note(n, queued=1.2, **waits) for n in range(8)))))
    assert "prepare.wait" not in found


@pytest.mark.parametrize(("waited", "there"), [(0.02, False), (0.1, True)])
def test_waiting_of_samples_is_told_where_it_is_notable(waited: float, there: bool) -> None:
    notes = [note(n, wall=(0.3 + waited, 0.3)) for n in range(8)]
    found = named(calibration(run(*notes)))
    assert ("prepare.wait" in found) == there
    if there:
        assert found["prepare.wait"].values == (pytest.approx((waited, 0.0) * 7),)
        assert found["prepare.sample"].mean == pytest.approx(0.3)


def test_turns_of_other_programs_are_no_part_of_sending() -> None:
    """Between two batches a worker waits 0.15 s for a core, of which 0.05 s while it prepares samples."""
    notes = [note(n, queued=0.05, waited=0.15 * n) for n in range(8)]
    found = named(calibration(run(*notes)))
    assert found["prepare.send"].flat == pytest.approx((0.1,) * len(found["prepare.send"].flat))


def test_on_a_busy_machine_the_trainer_s_turns_are_no_part_of_the_hand_over() -> None:
    def waits(others: float) -> list[float]:
        made = run(others=others)
        steps = [step._replace(got=step.got + 0.5, queued=0.4) for step in made.trial.steps]
        found = named(calibration(replace(made, trial=replace(made.trial, steps=tuple(steps)))))
        return [
            value for name, one in found.items() if name.startswith("receive.") for value in one.flat if "_" in name
        ]

    quiet, busy = waits(others=0.0), waits(others=1.0)
    assert quiet == pytest.approx([0.5] * len(quiet)) and busy == pytest.approx([0.1] * len(busy)) and busy


def test_steps_have_their_shares_of_a_sample() -> None:
    """Of the samples that were split, and of a run without any there is none."""
    steps = [note(n, steps=(0.0, 0.1, 0.3) if n % 4 == 1 else (0.0, 0.0, 0.0)) for n in range(8)]
    of = subject(steps=("fetch", "decode", "transform"))
    found = named(calibration(run(*steps), run(*(note(n, steps=(0.0,) * 3) for n in range(8)), round=1), of=of))
    assert [found[f"prepare.step.{name}"].flat for name in of.steps] == [
        (0.0,), (pytest.approx(0.075),), (pytest.approx(0.225),),
    ]  # fmt: skip
    assert not [name for name in named(calibration(run(), of=subject(steps=("sample",)))) if "step" in name]


def test_sending_is_what_is_between_batches_of_a_worker_that_had_the_next_to_make() -> None:
    """After the fifth batch the worker rests: two are out, and the trainer asks late."""
    moments = (0, 1, 2, 3, 4, 9, 10, 11)
    notes = [note(moment) for moment in moments]
    made = run(*notes)
    late = made.trial.steps[2]._replace(asked=8.5)  # batch 3, whose pick-up deals batch 5
    steps = (*made.trial.steps[:2], late, *made.trial.steps[3:])
    found = named(calibration(replace(made, trial=replace(made.trial, steps=steps))))
    assert max(found["prepare.send"].flat) == pytest.approx(0.2)


def test_scaling_is_work_beside_all_others_up_to_the_cores() -> None:
    def crowd(workers: int, cpu: float, alone: float) -> CalibrationRun:
        """All workers make four batches each at the same time; then the first makes two more while the others rest."""
        notes = [note(n // workers, worker=n % workers, cpu=(cpu, cpu)) for n in range(4 * workers)]
        notes += [note(n, cpu=(alone, alone)) for n in (4, 5)]
        return run(*notes, workers=workers, kinds=(*(FIRST,) * (workers - 1), *(PACED_STEP,) * (3 * workers + 2)))

    found = named(calibration(crowd(1, 0.3, 0.5), crowd(2, 0.4, 9.0), crowd(3, 0.9, 9.0)))
    # Two samples, which take so long each, and 0.2 s of collation; the first batch of each worker does not count.
    assert found["scaling.1"].mean == pytest.approx(0.4 + 2 / 5 * 0.2)
    assert found["scaling.2"].mean == pytest.approx(0.5)
    assert "scaling.3" not in found  # more than there are cores
    assert {"receive.cpu", "receive.cpu.2", "receive.cpu.3"} <= set(found)


@pytest.mark.parametrize(("late", "cost"), [(0.06, 0.9), (0.1, 0.5)])
def test_a_batch_counts_where_all_others_work_nearly_all_the_time(late: float, cost: float) -> None:
    """One of six pairs, of 0.8 s each, begins at times that are so far apart, and is dear."""
    notes = [note(n // 2, worker=n % 2, cpu=(0.4, 0.4)) for n in range(12)]
    second = note(3 + late, worker=1, cpu=(2.6, 2.6))  # of the six later pairs' twelve batches
    notes[6:8] = [notes[6]._replace(cpu=(2.6, 2.6)), second]
    kinds = (FIRST, *(PACED_STEP,) * 10)
    assert named(calibration(run(*notes, workers=2, kinds=kinds)))["scaling.2"].mean == pytest.approx(cost, abs=0.05)


def test_a_long_batch_counts_though_the_others_rest_in_the_end() -> None:
    notes = [note(n // 2, worker=n % 2, cpu=(0.4, 0.4)) for n in range(12)]
    notes[11] = notes[11]._replace(made=notes[11].made + 5.0, cpu=(2.4, 2.4))
    kinds = (FIRST, *(PACED_STEP,) * 10)
    found = named(calibration(run(*notes, workers=2, kinds=kinds)))
    assert found["scaling.2"].mean == pytest.approx(0.5 + 2.0 / 10)


def test_where_few_batches_are_made_beside_all_others_those_without_a_pause_count() -> None:
    notes = [note(n, worker=n % 2, cpu=(0.3 + n / 10, 0.3)) for n in range(8)]
    found = named(calibration(run(*notes, workers=2)))  # the second to the fourth are streamed
    assert found["scaling.2"].mean == pytest.approx(0.4 + 0.2 / 2)


def test_waiting_for_hand_overs_is_told_by_its_state_where_it_was_seen_often() -> None:
    found = named(calibration(run(receive=0.25), run(round=1, receive=0.25)))
    waits = {name: m for name, m in found.items() if name.removeprefix("receive.") in STATES}
    # 12 of 14 batches are picked up as they are made, and the next is begun; the last of each run has no next one.
    assert {name: len(m.flat) for name, m in waits.items()} == {"receive.begin_free": 12}
    assert waits["receive.begin_free"].unit == "s/batch" and len(waits["receive.begin_free"].values) == 2
    assert set(waits["receive.begin_free"].flat) == {0.0}  # all of it was the trainer's own CPU time


def test_a_state_of_hand_overs_counts_where_every_round_has_seen_it() -> None:
    """Many batches of one round are no repeats; three batches are few."""
    seen = {
        "begin_free": [[0.1] * 2] * 3,
        "rest_free": [[0.1] * 20] * 2,
        "work_free": [[0.1]] * 3,
        "send_free": [[0.1]] * 3,
    }
    assert set(costs._often(seen, least_rounds=3)) == {"begin_free", "send_free"}
    assert set(costs._often(seen, least_rounds=2)) == {"begin_free", "rest_free", "send_free"}


def test_what_frees_the_batch_before_is_a_part_of_receiving_with_the_fewest_workers() -> None:
    def freeing(share: float, **other: Any) -> CalibrationRun:
        made = run(**other)
        steps = tuple(step._replace(freed=share * step.cpu) for step in made.trial.steps)
        return replace(made, trial=replace(made.trial, steps=steps))

    many = freeing(0.9, workers=2, receive=0.05)
    found = named(calibration(freeing(0.25, receive=0.02), freeing(0.75, receive=0.04, round=1), many))
    assert found["receive.cpu"].values == (pytest.approx((0.02,) * 5), pytest.approx((0.04,) * 5))
    assert found["receive.release"].values == (pytest.approx((0.005,) * 5), pytest.approx((0.03,) * 5))
    assert "receive.release" not in named(calibration(run(), of=subject(threads=True)))


def handed_over(*waits: tuple[float, float]) -> CalibrationRun:
    """A run of one worker: what each hand-over took, and how long the step behind it was."""
    made = run(kinds=(STREAMED,) * len(waits))
    steps = [
        step._replace(got=step.got + wait, start=step.got + wait, end=step.got + wait + length)
        for step, (wait, length) in zip(made.trial.steps, waits, strict=True)
    ]
    return replace(made, trial=replace(made.trial, steps=tuple(steps)))


def test_a_hand_over_is_that_of_a_loop_with_steps_where_enough_were_seen() -> None:
    """Without a step all of the maker's sending is in it, which in a training goes on while the device works."""
    begins = {"receive.begin_free": 0.02}
    # Those behind a step of 10 ms take 20 ms, and all others 50 ms: the first with a step, and the drained ones too.
    paced = [(0.05, 0.0)] * 5 + [(0.05, 0.01)] + [(0.02, 0.01)] * 6 + [(0.02, 0.0)] + [(0.05, 0.0)] * 3
    found = named(calibration(handed_over(*paced)))
    assert {name: found[name].mean for name in begins} == pytest.approx(begins)
    few = [(0.05, 0.01), *[(0.02, 0.01)] * 4, (0.02, 0.0), *[(0.05, 0.0)] * 10]  # fewer than six: all count
    mean = found_mean(few[:-1])
    assert named(calibration(handed_over(*few)))["receive.begin_free"].mean == pytest.approx(mean)


def found_mean(waits: list[tuple[float, float]]) -> float:
    return sum(wait for wait, _ in waits) / len(waits)


def test_what_was_seen_too_rarely_is_better_than_nothing() -> None:
    found = named(calibration(run(kinds=(STREAMED, DRAINED, DRAINED))))
    assert {"receive.begin_free", "receive.send_free"} <= set(found)


def test_sending_is_seen_with_the_last_batch_of_each_run_and_counts_from_three_on() -> None:
    def states(rounds: int) -> set[str]:
        return set(named(calibration(*(run(round=number) for number in range(rounds)))))

    # Of a run's seven batches six are picked up as they are made and the next is begun; behind the last none comes.
    assert "receive.send_free" not in states(2) and "receive.begin_free" in states(2)
    assert {"receive.send_free", "receive.begin_free"} <= states(3)


def test_memory_and_threads_of_workers() -> None:
    two = [note(n, worker=n % 2) for n in range(8)]
    runs = (
        run(threads=(3, 2.5)), run(round=1, threads=None), run(round=2, threads=(4, 2.0)),
        run(*two, workers=2, memory=(WorkerMemory(10, 30), WorkerMemory(20, 40))),
        run(*two, workers=2, round=1, memory=(WorkerMemory(12, 30),)),
        run(*two, workers=2, round=2),
        run(*two, workers=3, memory=(WorkerMemory(99, 99),)),  # more than there are cores
    )  # fmt: skip
    found = named(calibration(*runs))
    assert found["worker.private"].values == ((10.0, 20.0), (12.0,))
    assert found["worker.shared"].values == ((30.0, 40.0), (30.0,)) and found["worker.shared"].unit == "B/worker"
    assert found["worker.start"].values == ((0.025,),) * 3  # one after the other
    assert found["threads.worked"].values == ((3.0,), (4.0,)) and found["threads.spread"].values == ((2.5,), (2.0,))


def test_pinning_is_what_the_thread_that_pins_spends_on_usual_batches() -> None:
    """It takes 0.06 s for each batch, 0.05 s of CPU time; the first ones, into new memory, take ten times as long."""
    clock, notes = 0.0, []
    for number in range(8):
        took = 0.6 if number < 3 else 0.06
        clock += took / 1.2
        notes.append(note(number)._replace(pinned=number + 0.8 + took, pin_clock=clock))
    kinds = (COLD, COLD, *KINDS[2:])
    made = run(*notes, kinds=kinds, sampler_s=2.0)
    found = named(calibration(made))
    assert found["prepare.pin"].values == (pytest.approx((0.025,) * 5),)
    assert found["receive.pin"].values == (pytest.approx((0.01,)),)
    # The thread does part of its work before the next batch is made: then it waits for nothing.
    early = [one._replace(pin_clock=2.0 * one.pin_clock) for one in notes]
    assert named(calibration(run(*early, kinds=kinds)))["receive.pin"].values == ((0.0,),)
    assert "prepare.pin" not in named(calibration(run()))


def test_pages_are_what_reading_a_batch_for_the_first_time_takes() -> None:
    """The first batch of a run is left out, as its other costs are."""
    reads = replace(run(), pages=(0.5, 0.004, 0.006), sampler_s=2.0)
    found = named(calibration(reads))["receive.pages"]
    assert found.values == ((0.002, 0.003),) and found.unit == "s/batch"
    assert "receive.pages" not in named(calibration(run()))


def test_threads_share_the_interpreter_and_copy_themselves() -> None:
    """Two threads get a batch done each second, of two samples that take 0.3 s by the clock; they wait for the lock."""
    notes = [note(n, cpu=(0.1, 0.1), fetch=0.5, copy=0.03) for n in range(8)]
    runs = (run(*notes), run(*notes, workers=2))
    found = named(calibration(*runs, of=subject(threads=True)))
    assert found["prepare.sample"].mean == 0.3 and "wall" in found["prepare.sample"].how
    assert found["prepare.wait"].mean == 0.25  # the fetches, in threads of their own
    assert found["receive.cpu"].mean == pytest.approx(0.03)
    # One sample takes one thread half a second, and two threads a whole one between them.
    assert found["scaling.1"].mean == pytest.approx(0.5) and found["scaling.2"].mean == pytest.approx(1.0)
    assert not {"prepare.send", "worker.first", "worker.start"} & set(found)


def test_a_trainer_waits_for_the_threads_lock_when_it_takes_a_batch() -> None:
    """Only after a step the threads have worked meanwhile; it had waited for the first two of these batches."""
    paced = run(kinds=(STREAMED, PACED_STEP, PACED_STEP, PACED_STEP, RESTED, DRAINED))
    early = [step._replace(asked=step.ready + 0.3, got=step.ready + 0.34) for step in paced.trial.steps[4:]]
    paced = replace(paced, trial=replace(paced.trial, steps=(*paced.trial.steps[:4], *early)))
    found = named(calibration(paced, replace(paced, round=1), of=subject(threads=True)))
    assert found["receive.thread_begin"].process_means == pytest.approx([0.01, 0.01])
    assert [len(values) for values in found["receive.thread_begin"].values] == [2, 2]
    assert found["receive.thread_rest"].values == (pytest.approx((0.04,)),) * 2
    assert found["receive.thread_rest"].unit == "s/batch"
    assert not any(name.startswith("receive.thread") for name in named(calibration(run())))
    assert not any(name.startswith("receive.rest") for name in found)


@pytest.mark.parametrize(
    ("four", "cpu", "cpus", "share"),
    [
        (1.05, 0.1, 8, 1 / 4 / longer(8)),  # one thread makes a batch in 4 s, and however many make one per second
        (1.2, 0.1, 8, None),  # twice as many get a fifth more done
        (1.05, 0.3, 8, None),  # they work all the time: it is the memory, say
        (1.05, 0.1, 4, None),  # the cores may hold them up
        (1.05, 0.1, 2, None),
    ],
)
def test_threads_that_get_no_more_done_though_they_wait_tell_for_how_long_they_hold_the_lock(
    four: float, cpu: float, cpus: int, share: float | None
) -> None:
    def runs(workers: int, seconds: float) -> CalibrationRun:
        made = [note(n, cpu=(cpu, cpu))._replace(began=seconds * n, made=seconds * n + 0.8) for n in range(8)]
        return run(*made, workers=workers)

    found = named(calibration(runs(1, 4.0), runs(4, four), runs(8, 1.0), of=subject(threads=True), cpus=cpus))
    assert (found["lock.share"].mean if "lock.share" in found else None) == (share and pytest.approx(share))
    alone = named(calibration(runs(1, 4.0), runs(4, four), runs(8, 1.0), cpus=cpus))
    assert "lock.share" not in alone  # processes have a lock each


def test_of_many_values_some_are_kept_with_the_mean_of_all() -> None:
    many = [note(n, cpu=tuple(0.001 * (1 + place) for place in range(2 * MOST_VALUES))) for n in range(8)]
    kept = named(calibration(run(*(n._replace(wall=n.cpu) for n in many))))["prepare.sample"].values[0]
    assert MOST_VALUES // 2 < len(kept) <= MOST_VALUES
    assert sum(kept) / len(kept) == pytest.approx(0.001 * (1 + 2 * MOST_VALUES) / 2)
    assert min(kept) < 0.05 and max(kept) > 0.7  # over all of their range


@pytest.mark.parametrize("count", range(MOST_VALUES + 50, 6 * MOST_VALUES, 317))
def test_what_is_kept_has_the_spread_of_all(count: int) -> None:
    # Of a heavy tail, the largest of some hundred values makes a tenth of the variance or more.
    drawn = random.Random(count)
    values = [drawn.lognormvariate(0.0, 1.0) for _ in range(count)]
    [kept] = costs._kept([values])
    assert len(kept) <= MOST_VALUES
    assert stats.mean(kept) == pytest.approx(stats.mean(values))
    assert stats.variance(kept) == pytest.approx(stats.variance(values), rel=0.05)


def test_a_disturbed_run_counts_only_where_there_are_too_few_others() -> None:
    noisy = run(*(note(n, cpu=(0.9, 0.9)) for n in range(8)), round=1, others=0.2)
    quiet = [run(round=number) for number in (0, 2, 3)]
    found = calibration(*quiet, noisy)
    assert named(found)["machine.others"].values == ((0.0,), (0.0,), (0.0,), (0.1,))  # of two CPUs
    assert found.disturbed(noisy) and found.of(1) == quiet and found.counts == (1,)
    assert named(found)["prepare.sample"].mean == pytest.approx(0.3)
    assert calibration(*quiet[:2], noisy).of(1) == [*quiet[:2], noisy]


@pytest.mark.parametrize(("seconds", "told"), [(0.02, 0.6), (0.6, 0.5), (1.5, 0.2), (30.0, 0.15)])
def test_a_speed_that_no_machine_has_changes_costs_by_a_factor_of_two_at_most(seconds: float, told: float) -> None:
    assert named(calibration(run(sampler_s=seconds)))["prepare.sample"].mean == pytest.approx(told)
    [warning] = warnings_of(calibration(run(), run(round=1), run(round=2, sampler_s=seconds)))
    assert f"{seconds:.2f}" in warning.value


def whats(*runs: CalibrationRun) -> list[str]:
    return [warning.what for warning in warnings_of(calibration(*runs))]


def test_what_makes_a_calibration_less_certain_is_told_with_the_remedy() -> None:
    assert whats(run(), run(round=1)) == []
    assert whats(run(others=0.5), run(round=1, others=0.5), run(round=2)) == [
        "the machine was busy while costs were measured"
    ]
    assert whats(run(sampler_s=0.9), run(round=1, sampler_s=1.2)) == ["the machine changed its speed"]
    assert whats(run(threads=(4, 3.0))) == ["libraries run threads inside workers"]
    assert whats(run(threads=(4, 1.1))) == whats(run(threads=(1, 3.0))) == []
    assert all(c.value and c.remedy for c in warnings_of(calibration(run(others=0.5, threads=(4, 3.0)))))


def test_parts_that_do_not_make_up_a_batch_contradict_it() -> None:
    """A batch comes each second: 0.6 s of samples, 0.2 s of collating, 0.2 s of sending."""
    assert contradiction(calibration(run())) == pytest.approx(0.0, abs=1e-6)
    missing = run(*(note(n, wall=(0.1, 0.1), collate=0.05) for n in range(8)))
    # What is not in the parts is taken for sending, as long as the worker had more to make; here it had.
    assert contradiction(calibration(missing)) == pytest.approx(0.0, abs=1e-6)
    starved = run()
    steps = tuple(s._replace(got=s.got + 2.0 * place) for place, s in enumerate(starved.trial.steps))
    held_up = replace(starved, trial=replace(starved.trial, steps=steps))
    assert contradiction(calibration(held_up)) == pytest.approx(2.0, rel=0.01) and CONTRADICTION < 2.0
    # A worker that waits for a core is not missed, and neither is a machine that is slower for a while.
    waited = [note(n)._replace(began=3.0 * n, made=3.0 * n + 0.8, queued=0.0, waited=2.0 * n) for n in range(8)]
    assert contradiction(calibration(run(*waited))) == pytest.approx(0.0, abs=1e-6)
    # Batches that wait for the trainer come as fast as it takes them, and stages make parts of them elsewhere.
    ready = tuple(s._replace(ready=s.asked) for s in steps)
    late = replace(starved, trial=replace(starved.trial, steps=ready))
    assert contradiction(calibration(late)) == 0.0
    threads = subject()
    threads.threads = True
    assert contradiction(calibration(held_up, of=threads)) == 0.0


def waiting(*waits: float, workers: int = 1, round: int = 0, slower: float = 1.0, **other: Any) -> CalibrationRun:
    """A run whose batches wait so many seconds for each of their two samples, and as many workers' first batch."""
    notes = [note(n, wall=(0.3 + slower * wait,) * 2, queued=0.0) for n, wait in enumerate((1.0, *waits))]
    kinds = (*[FIRST] * (workers - 1), *[STREAMED] * (len(waits) - workers + 1))
    return run(*notes, workers=workers, round=round, kinds=kinds, **other)


MORE = (0.5, 0.7, 0.9, 0.6, 2.0, 3.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, (0.7, 0.9, 0.6, 2.0, 3.0)),
        ({"slower": 1.04}, tuple(1.04 * wait for wait in (0.7, 0.9, 0.6, 2.0, 3.0))),
        ({"slower": 1.3}, (0.5, 0.7, 0.9, 0.6)),  # several slow one another down: what one waits is the cost
        ({"others": 1.9}, (0.5, 0.7, 0.9, 0.6)),  # disturbed
        ({"round": 1}, (0.5, 0.7, 0.9, 0.6)),  # other samples
    ],
)
def test_waits_are_those_of_the_run_that_waited_most_often_and_as_long(
    changes: dict[str, Any], told: tuple[float, ...]
) -> None:
    found = named(calibration(waiting(*MORE[:4]), waiting(*MORE, workers=2, **changes)))
    assert found["prepare.wait"].values[0] == pytest.approx([wait for wait in told for _ in range(2)])
    assert found["prepare.sample"].flat == pytest.approx((0.3,) * 8)


@pytest.mark.parametrize(("slower", "counted"), [(1.0, 8), (1.3, 5)])
def test_a_crowd_is_compared_by_the_later_samples_of_its_workers_first_batches(slower: float, counted: int) -> None:
    """All that five workers share with one, whose run is short, are their first batches; a first sample connects."""
    waits = (*MORE, 0.4, 1.1, 0.8, 0.3, 1.2, 0.5)
    crowd = waiting(*waits, workers=5, slower=slower)
    notes = [one._replace(wall=(one.wall[0] + 9.0, one.wall[1])) for one in crowd.trial.notes[:4]]
    crowd = replace(crowd, trial=replace(crowd.trial, notes=(*notes, *crowd.trial.notes[4:])))
    [told] = named(calibration(waiting(*waits[:3]), waiting(*waits[:6], workers=2), crowd))["prepare.wait"].values
    assert len(told) == 2 * counted
    assert told[-2:] == pytest.approx((waits[-1],) * 2 if slower == 1.0 else (waits[5],) * 2)


def test_the_longest_waits_are_kept() -> None:
    waits = [0.5 + place / 1000 for place in range(800)]
    [told] = named(calibration(waiting(*waits)))["prepare.wait"].values
    assert len(told) == 2 * len(waits) > MOST_VALUES
    assert max(told) == pytest.approx(waits[-1])


def test_batches_with_new_memory_tell_what_samples_wait_and_not_what_they_cost() -> None:
    waits = (1.0, 0.5, 0.7, 0.9, 0.6, 0.4, 0.8)
    notes = [note(n, cpu=(cpu,) * 2, wall=(cpu + wait,) * 2, queued=0.0)
             for n, (wait, cpu) in enumerate(zip(waits, (0.9,) * 4 + (0.3,) * 3, strict=True))]  # fmt: skip
    made = run(*notes, kinds=(COLD, COLD, COLD, STREAMED, PACED_STEP, RESTED))
    found = named(calibration(made))
    assert found["prepare.wait"].flat == pytest.approx([wait for wait in waits[1:] for _ in range(2)])
    assert found["prepare.sample"].flat == pytest.approx((0.3,) * 6)


def resting(workers: int, cpu: float, seconds: float = 1.0, **other: Any) -> CalibrationRun:
    """A run whose batches wait for 0.6 s and work for four times ``cpu`` seconds: two samples, collation, receiving."""
    waits = {"wall": (0.3 + cpu,) * 2, "cpu": (cpu, cpu), "collate": cpu, "queued": 0.0}
    notes, kinds = [note(n, **waits) for n in range(2 * workers + 2)], (STREAMED,) * (2 * workers + 1)
    return run(*notes, workers=workers, receive=cpu, kinds=kinds, sampler_s=seconds, **other)


@pytest.mark.parametrize(
    ("more", "told", "seconds"),
    [
        ([resting(8, 0.02)], 0.02, 1.3),
        ([resting(2, 0.03), resting(8, 0.02)], 0.02, 1.3),
        # More than one core's work: there they slow one another down, which s(k) tells.
        ([resting(2, 0.03), resting(16, 0.02)], 0.03, 1.3),
    ],
)
def test_where_samples_wait_work_costs_what_it_does_on_the_busiest_core(
    more: list[CalibrationRun], told: float, seconds: float
) -> None:
    """One worker that sleeps lets the CPUs rest, and work after a rest takes up to four times the CPU time."""
    made = calibration(resting(1, 0.04), *more)
    made = replace(made, usual_sampler_s={1: 1.0, 2: 1.3, 8: 1.3, 16: 1.4})
    made = replace(made, runs=tuple(replace(one, sampler_s=made.usual_sampler_s[one.workers]) for one in made.runs))
    found = named(made)
    for name in ("prepare.sample", "prepare.collate"):
        assert found[name].mean == pytest.approx(told)
    assert usual_sampler_times(made)[1] == seconds
    # A trainer that receives from few workers rests as long in a training.
    assert found["receive.cpu"].mean == pytest.approx(0.04)


def test_where_cpus_rest_each_number_of_workers_has_a_speed_of_its_own() -> None:
    """Up to eight workers keep less than half a CPU busy; sixteen and twenty keep one busy."""
    times = {1: 3.0, 2: 2.0, 8: 1.0}
    rests = [resting(workers, 0.01, seconds=times[workers] * off) for off in (0.9, 1.1) for workers in times]
    busy = [resting(16, 0.015, seconds=1.2), resting(20, 0.015, seconds=1.6)]
    assert mean_sampler_s([*rests, *busy], cpus=2) == pytest.approx({**times, 16: 1.4, 20: 1.4})
    # What few workers rest is no change of the machine's speed.
    made = calibration(*rests)
    speed = named(replace(made, usual_sampler_s=mean_sampler_s(rests, cpus=2)))["machine.speed"]
    assert speed.flat == pytest.approx([1.0 / off for off in (0.9, 1.1) for _ in range(3)])


def test_runs_with_few_workers_and_with_many_are_not_mixed() -> None:
    """A cost rests on three rounds: with many workers where these are there, disturbed or not, else with one."""
    rounds = [(resting(1, 0.08, round=n), resting(8, 0.02, round=n, others=1.9 * (n == 2))) for n in range(3)]
    found = named(calibration(*(one for pair in rounds for one in pair)))
    assert found["prepare.sample"].process_means == pytest.approx((0.02, 0.02, 0.02))
    found = named(calibration(*[one for pair in rounds for one in pair][:-1]))
    assert found["prepare.sample"].process_means == pytest.approx((0.08, 0.08, 0.08))
    # A fourth round made up for the disturbed one.
    found = named(calibration(*(one for pair in rounds for one in pair), resting(8, 0.03, round=3)))
    assert found["prepare.sample"].process_means == pytest.approx((0.02, 0.02, 0.03))


def test_where_no_sample_waits_work_costs_what_one_worker_showed() -> None:
    made = calibration(run(), run(*(note(n, cpu=(0.2, 0.2), wall=(0.2, 0.2)) for n in range(8)), workers=2))
    assert (
        named(made)["prepare.sample"].mean == pytest.approx(0.3) and usual_sampler_times(made) is made.usual_sampler_s
    )


def test_of_slow_batches_the_first_that_is_received_does_not_count() -> None:
    """The trainer has no earlier batch to free at it yet."""
    slow = run(kinds=(DRAINED, DRAINED, DRAINED))
    assert slow.received == list(slow.trial.steps[1:])
    only = run(kinds=(DRAINED,))
    assert only.received == list(only.trial.steps)


def varied(rng: random.Random, batches: int, together: float, apart: float) -> CalibrationRun:
    """A run whose batches of 25 samples vary as a whole and by sample, both relative to 0.01 s."""
    factors = [1.0 + rng.gauss(0.0, together) for _ in range(batches + 1)]
    cpu = [tuple(0.01 * (factor + rng.gauss(0.0, apart)) for _ in range(25)) for factor in factors]
    return run(*(note(number, wall=one, cpu=one) for number, one in enumerate(cpu)), kinds=(STREAMED,) * batches)


def test_what_batches_vary_as_a_whole_is_told_apart_from_what_their_samples_do() -> None:
    """Of 900 batches; independent samples alone let means of 25 vary by 0.3 / 5."""
    rng = random.Random(1)
    found = named(calibration(*(varied(rng, 300, together=0.1, apart=0.3) for _ in range(3))))
    assert found["prepare.shared_cv"].mean == pytest.approx(0.1, rel=0.1)
    alone = shared_cv([varied(rng, 300, together=0.0, apart=0.3) for _ in range(3)])
    assert alone < 0.02
    assert "prepare.shared_cv" not in named(calibration(run(), run(round=1), run(round=2)))


def test_of_one_batch_or_of_batches_of_one_sample_nothing_is_told() -> None:
    single = [run(*(note(number, wall=(0.3,), cpu=(0.1 * number,)) for number in range(8)))]
    assert shared_cv(single) == shared_cv([run(note(0), note(1), kinds=(STREAMED,))]) == shared_cv([]) == 0.0

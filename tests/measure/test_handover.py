"""The states of hand-overs that were seen, by hand on made-up trials."""

from __future__ import annotations

import pytest
from kit import made_note

from coresim.measure.handover import pinning, waits_by_state
from coresim.measure.trial import TimedStep, Trial


def step(asked: float, ready: float, got: float, cpu: float = 0.01) -> TimedStep:
    return TimedStep(asked, ready, got, got, got + 1.0, cpu)


def almost(found: dict[str, list[float]]) -> dict[str, object]:
    return {state: pytest.approx(waits) for state, waits in found.items()}


#: One worker, two batches out: batch n is dealt when batch n - 2 is wanted.
ONE = Trial(
    0.0,
    (
        step(1.2, 1.0, 1.31),  # batch 1 is made from 1.0 to 2.0: its maker is at work
        step(2.9, 2.0, 3.01),  # and so it is at batch 2, from 2.0 to 3.0
        step(5.0, 3.0, 5.02),  # batch 3 was over at 4.0: it rests
        step(5.5, 4.0, 5.53),  # batch 4 was dealt at 5.0: it is at work
        step(5.8, 6.0, 6.11),  # not ready: batch 5 is begun when it is
        step(6.2, 7.0, 7.03),  # nothing comes after the last one
    ),
    (
        made_note(0.0, 1.0), made_note(1.1, 2.0), made_note(2.2, 3.0),
        made_note(3.3, 4.0), made_note(5.1, 6.0), made_note(6.1, 7.0),
    ),
)  # fmt: skip


def test_the_maker_is_seen_to_rest_to_be_at_work_to_begin_another_batch_or_to_send() -> None:
    seen = waits_by_state(ONE, workers=1, prefetch_factor=2, cpus=2)
    assert almost(seen) == {
        "work_free": [0.1, 0.1, 0.02], "rest_free": [0.01], "begin_free": [0.1], "send_free": [0.02],
    }  # fmt: skip


def test_a_worker_that_waits_for_its_own_threads_lock_has_begun() -> None:
    """The note of a batch says when its first sample was begun; before that, its worker waited for the lock."""
    late = ONE.notes[1]._replace(began=1.9)
    trial = Trial(0.0, ONE.steps, (ONE.notes[0], late, *ONE.notes[2:]))
    # Of the first batches nobody knows when they were dealt: the note itself is taken.
    assert almost(waits_by_state(trial, 1, 2, 2)) == {
        "work_free": [0.1, 0.02], "rest_free": [0.1, 0.01], "begin_free": [0.1], "send_free": [0.02],
    }  # fmt: skip
    later = Trial(0.0, ONE.steps, (*ONE.notes[:4], ONE.notes[4]._replace(began=5.9), ONE.notes[5]))
    assert waits_by_state(later, 1, 2, 2) == waits_by_state(ONE, 1, 2, 2)


def test_with_one_batch_out_its_maker_sends_and_then_rests() -> None:
    steps = (step(0.5, 1.0, 1.04), step(3.0, 2.5, 3.02))
    trial = Trial(0.0, steps, (made_note(0.0, 1.0), made_note(1.1, 2.5)))
    assert almost(waits_by_state(trial, 1, 1, 2)) == {"send_free": [0.03], "rest_free": [0.01]}


def test_who_else_is_at_work_crowds_the_cores() -> None:
    notes = (made_note(0.0, 1.0), made_note(0.0, 9.0, worker=8))
    trial = Trial(0.0, (step(4.0, 1.0, 4.03), step(9.5, 9.0, 9.52)), notes)
    # Three want two cores: of 30 ms the trainer's own 10 ms take half as long again.
    assert almost(waits_by_state(trial, 2, 2, 2)) == {"rest_shared": [0.015], "rest_free": [0.01]}
    # Of one core three and then two want a part; no wait is less than none.
    assert almost(waits_by_state(trial, 2, 2, 1)) == {"rest_crowded": [0.0, 0.0]}
    assert almost(waits_by_state(trial, 2, 2, 8)) == {"rest_free": [0.02, 0.01]}


def test_what_the_trainer_waits_for_other_programs_is_left_out() -> None:
    notes = (made_note(0.0, 1.0), made_note(0.0, 9.0, worker=8))
    steps = (step(4.0, 1.0, 4.03)._replace(queued=0.01), step(9.5, 9.0, 9.52)._replace(queued=0.01))
    found = waits_by_state(Trial(0.0, steps, notes), 2, 2, 2, foreign=1.0)
    # Where the job leaves a core free, all of it; where three of the job want two cores, its share of what they want.
    assert almost(found) == {"rest_shared": [0.010], "rest_free": [0.0]}


def test_a_batch_that_is_there_before_it_is_asked_for_waits_from_then_on() -> None:
    trial = Trial(0.0, (step(4.0, 1.0, 4.5, cpu=0.0),), (made_note(0.0, 1.0),))
    assert almost(waits_by_state(trial, 1, 2, 2)) == {"rest_free": [0.5]}
    late = Trial(0.0, (step(0.5, 1.0, 1.5, cpu=0.0),), (made_note(0.0, 1.0),))
    assert almost(waits_by_state(late, 1, 2, 2)) == {"send_free": [0.5]}


def test_workers_that_sleep_in_their_reads_do_not_crowd_the_cores() -> None:
    notes = (made_note(0.0, 1.0, cpu=(0.1,)), made_note(0.0, 9.0, worker=8, cpu=(0.9,)))
    trial = Trial(0.0, (step(4.0, 1.0, 4.03), step(9.5, 9.0, 9.52)), notes)
    assert almost(waits_by_state(trial, 2, 2, 2)) == {"rest_free": [0.02, 0.01]}
    queued = tuple(note._replace(queued=0.8 * note.made) for note in notes)
    # What a worker waits for a core it wants: it is no sleep.
    assert almost(waits_by_state(Trial(0.0, trial.steps, queued), 2, 2, 2)) == {
        "rest_shared": [0.015],
        "rest_free": [0.01],
    }


def test_a_batch_that_was_received_before_its_turn_shows_nothing() -> None:
    notes = (made_note(0.0, 5.0), made_note(0.0, 2.0, worker=8), made_note(5.0, 9.0))
    steps = (step(0.0, 5.0, 5.03), step(6.0, 2.0, 6.0, cpu=0.0), step(6.5, 9.0, 9.02))
    assert almost(waits_by_state(Trial(0.0, steps, notes), 2, 1, 8)) == {"send_free": [0.02, 0.01]}
    # So is one that was there before the last batch of the warm-up.
    after = Trial(0.0, steps[1:], notes[1:], warm_up=notes[:1])
    assert almost(waits_by_state(after, 2, 1, 8)) == {"send_free": [0.01]}


def test_a_batch_that_the_trainer_waits_for_is_pickled_meanwhile() -> None:
    notes = (made_note(0.0, 1.0), made_note(1.0, 2.0))
    trial = Trial(0.0, (step(0.5, 1.0, 1.31), step(1.5, 2.0, 2.31)), notes)
    # That is a part of sending it. One that was there has been pickled, or its maker is at that.
    assert almost(waits_by_state(trial, 1, 2, 2, pickling=0.2)) == {"begin_free": [0.3], "send_free": [0.3]}
    late = Trial(0.0, (step(1.1, 1.0, 1.31), step(2.1, 2.0, 2.31)), notes)
    assert almost(waits_by_state(late, 1, 2, 2, pickling=0.2)) == {"work_free": [0.1], "rest_free": [0.1]}


def test_batches_that_are_ahead_in_the_queue_share_what_is_waited() -> None:
    # All of it was made while the trainer was at a step: batch 0 last, so that 1 and 2 come out of the queue with it.
    notes = (made_note(0.0, 3.0), made_note(0.0, 1.0, worker=1), made_note(0.0, 2.0, worker=2), made_note(3.0, 9.0))
    steps = (step(5.0, 3.0, 5.07), step(6.0, 1.0, 6.0, cpu=0.0), step(6.5, 2.0, 6.5, cpu=0.0), step(9.5, 9.0, 9.52))
    assert almost(waits_by_state(Trial(0.0, steps, notes), 3, 1, 8)) == {"rest_free": [0.02, 0.01]}
    # One that the trainer waits for comes alone: it took the others while it waited.
    waiting = (step(0.5, 3.0, 3.07), *steps[1:])
    assert almost(waits_by_state(Trial(0.0, waiting, notes), 3, 1, 8)) == {"send_free": [0.06], "rest_free": [0.01]}
    # Those that were made later are behind it.
    behind = (notes[0], made_note(0.0, 4.0, worker=1), *notes[2:])
    found = waits_by_state(Trial(0.0, (steps[0], step(6.0, 4.0, 6.02), *steps[2:]), behind), 3, 1, 8)
    assert almost(found) == {"rest_free": [0.03, 0.01, 0.01]}


def test_where_a_thread_pins_the_trainer_waits_from_the_pinned_batch_on() -> None:
    """Batch 0 is made at 1.0 and pinned at 1.3; batch 1 at 2.0 and 2.3, when the trainer has long asked for it."""
    notes = tuple(made_note(n, n + 1.0)._replace(pinned=n + 1.3) for n in range(3))
    steps = (step(1.5, 1.3, 1.54), step(1.6, 2.3, 2.33), step(4.0, 3.3, 4.01))
    # The trainer is woken for batch 1 and finds the others, whatever their makers do meanwhile.
    found = waits_by_state(Trial(0.0, steps, notes), 1, 2, 4)
    assert almost(found) == {"rest_free": [0.03, 0.0], "begin_free": [0.02]}


def test_a_batch_that_was_pinned_before_an_earlier_one_was_received_shows_nothing() -> None:
    notes = tuple(made_note(0, made)._replace(pinned=pinned) for made, pinned in ((2.0, 2.5), (1.0, 1.2)))
    trial = Trial(0.0, (step(0.5, 2.5, 2.54), step(2.6, 1.2, 2.62)), notes)
    assert almost(waits_by_state(trial, 2, 2, 4)) == {"begin_free": [0.03]}


def test_the_thread_that_pins_waits_beyond_its_own_work() -> None:
    """It pins one batch after the other; its CPU clock is at 5.0 s when it has pinned the first."""
    moments = ((1.0, 1.5, 5.0), (1.1, 1.9, 5.2), (3.0, 3.2, 5.5))
    notes = tuple(made_note(0.0, made)._replace(pinned=at, pin_clock=clock) for made, at, clock in moments)
    trial = Trial(0.0, tuple(step(at, at, at + 0.1) for _, at, _ in moments), notes)
    # When it was free for the first one is not known; the second waited for it, and took it 0.4 s; the third 0.2 s, and
    # more CPU time than that, because it still had to let the second go.
    assert [pytest.approx(one) for one in pinning(trial, notes)] == [(0.2, 0.2), (0.3, -0.1)]
    assert pinning(trial, notes[:1]) == [] and pinning(trial, notes[2:]) == [pytest.approx((0.3, -0.1))]
    # A batch of the warm-up comes before; the order in which batches were pinned counts, not that of their delivery.
    later = Trial(0.0, trial.steps[1:], notes[:0:-1], warm_up=notes[:1])
    assert sorted(pinning(later, later.notes)) == sorted(pinning(trial, notes))

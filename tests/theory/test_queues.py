"""The models of the field, and the line that they are special cases of: by hand and by a solve of its generator."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from birth_death import closed_line, example, mean_outstanding, stationary

from coresim import stats
from coresim.errors import InputError
from coresim.sim import fast
from coresim.sim.draws import draw
from coresim.sim.run import RunLength
from coresim.theory.queues import buffer_idle, buffer_wait, rate_idle


def by_linear_solve(rates):
    """Stationary probabilities of the generator with ``rates[i][j]`` from state i to j, by least squares."""
    generator = np.array(rates, dtype=float)
    np.fill_diagonal(generator, 0.0)
    np.fill_diagonal(generator, -generator.sum(axis=1))
    system = np.vstack([generator.T, np.ones(len(generator))])
    return np.linalg.lstsq(system, np.append(np.zeros(len(generator)), 1.0), rcond=None)[0]


def line_by_brute_force(workers, cores, credits, prepare, step, speed):
    """The line's generator over (batches in service, queued, ready, step under way), found by following its rules."""
    settled = {}

    def settle(serving, queued, ready, busy):
        if not busy and ready:
            return settle(serving, queued + 1, ready - 1, True)
        taken = min(workers - serving, queued)
        return serving + taken, queued - taken, ready, busy

    def moves(serving, queued, ready, busy):
        if serving:
            active = min(serving, cores)
            yield settle(serving - 1, queued, ready + 1, busy), active * speed[active - 1] / prepare
        if busy:
            yield settle(serving, queued, ready, False), 1 / step

    frontier = [settle(0, credits, 0, False)]
    while frontier:
        state = frontier.pop()
        if state not in settled:
            settled[state] = list(moves(*state))
            frontier += [after for after, _ in settled[state]]
    states = list(settled)
    rates = np.zeros((len(states), len(states)))
    for state, exits in settled.items():
        for after, rate in exits:
            rates[states.index(state), states.index(after)] += rate
    return states, by_linear_solve(rates)


@pytest.mark.parametrize(("workers", "cores", "credits"), [(1, 1, 1), (3, 2, 4), (4, 3, 2), (2, 4, 9), (5, 3, 5)])
def test_line_agrees_with_a_brute_force_solution(workers, cores, credits):
    speed = (1.0, 0.9, 0.7, 0.65)
    line = closed_line(workers, cores, credits, 1.3, 0.6, speed)
    states, probabilities = line_by_brute_force(workers, cores, credits, 1.3, 0.6, speed)
    busy = sum(p for (_, _, _, step), p in zip(states, probabilities, strict=True) if step)
    taken = sum(p * (serving + ready) for (serving, _, ready, _), p in zip(states, probabilities, strict=True))
    assert line.utilisation == pytest.approx(busy, abs=1e-10)
    assert line.throughput == pytest.approx(busy / 0.6, abs=1e-9)
    assert line.outstanding == pytest.approx(taken, abs=1e-9)


def test_line_by_hand_and_exactly():
    line = closed_line(1, Fraction(1), 1, Fraction(1), Fraction(1))
    assert line.probabilities == (Fraction(1, 3),) * 3
    assert (line.utilisation, line.throughput, line.outstanding) == (Fraction(2, 3), Fraction(2, 3), 1)
    shared = closed_line(2, Fraction(1), 2, Fraction(1), Fraction(1, 2))
    assert shared.probabilities == tuple(Fraction(n, 15) for n in (8, 4, 2, 1))
    assert all(isinstance(number, Fraction) for number in (shared.utilisation, shared.outstanding))


def test_line_limits():
    assert closed_line(4, 2.0, 2000, 1.0, 0.25).utilisation == pytest.approx(2 * 0.25)  # the cores bind
    assert closed_line(4, 8.0, 2000, 1.0, 0.1).utilisation == pytest.approx(4 * 0.1)  # the workers bind
    assert closed_line(4, 4.0, 2000, 1.0, 0.5).utilisation == pytest.approx(1.0)  # the accelerator binds
    assert closed_line(3, 3.0, 7, 1.0, 0.4) == closed_line(3, 30.0, 7, 1.0, 0.4)


def test_line_grows_with_cores_workers_and_credits():
    def utilisations(sizes):
        return [closed_line(*size, 1.0, 0.3).utilisation for size in sizes]

    for sizes in (
        [(6, float(cores), 8) for cores in range(1, 8)],
        [(workers, 4.0, 8) for workers in range(1, 10)],
        [(4, 3.0, credits) for credits in range(1, 20)],
    ):
        assert all(low <= high + 1e-12 for low, high in pairwise(utilisations(sizes)))


def test_a_long_exponential_run_contains_the_line():
    arguments = (3, 2.0, 4, 1.0, 0.7, (1.0, 0.9, 0.8))
    pipeline = example(*arguments)
    run = fast.simulate(pipeline, draw(pipeline, 40_100, seed=11), RunLength(40_100, 100, trace=True))
    (trace,) = run.traces
    starts, ends = trace.start[100:], trace.end[99:]
    batches = [(ends[at], starts[at : at + 1000], ends[at + 1 : at + 1001]) for at in range(0, 40_000, 1000)]
    busy = [(sum(done) - sum(begun)) / (done[-1] - since) for since, begun, done in batches]
    low, high = stats.t_interval(busy, 0.99)
    line = closed_line(*arguments)
    assert low < line.utilisation < high
    assert (high - low) / 2 < 0.01  # against an idle fraction of 0.099
    assert mean_outstanding(run) == pytest.approx(line.outstanding, rel=0.01)


def test_stationary_neither_overflows_nor_vanishes():
    assert stationary([100.0] * 600, [1.0] * 600)[-1] == pytest.approx(0.99)
    assert stationary([0.01] * 600, [1.0] * 600)[0] == pytest.approx(0.99)
    assert stationary([Fraction(2), Fraction(1)], [Fraction(1), Fraction(4)]) == (
        Fraction(2, 7),
        Fraction(4, 7),
        Fraction(1, 7),
    )


@pytest.mark.parametrize(("producer", "consumer", "buffer"), [(0.5, 0.2, 3), (0.2, 0.5, 3), (0.3, 0.3, 4)])
def test_buffer_wait_agrees_with_a_linear_solve(producer, consumer, buffer):
    rates = np.diag([1 / producer] * buffer, 1) + np.diag([1 / consumer] * buffer, -1)
    assert buffer_wait(producer, consumer, buffer) == pytest.approx(by_linear_solve(rates)[0] * producer)


def test_rate_model():
    assert rate_idle(50, 80, 100) == pytest.approx(0.5)
    assert rate_idle(200, 80, 100) == pytest.approx(0.2)
    assert rate_idle(200, 180, 100) == 0.0
    with pytest.raises(InputError, match="positive"):
        rate_idle(0, 1, 1)


def test_buffer_model_by_hand():
    assert buffer_wait(2.0, 2.0, 3) == pytest.approx(2.0 / 4)
    assert buffer_wait(2.0, 1.0, 1) == pytest.approx((1 - 0.5) / (1 - 0.25) * 2.0)
    assert buffer_wait(2.0, 1.0, 0) == pytest.approx(2.0)
    assert buffer_idle(0.5, 1.0, 0) == pytest.approx(2 / 3)  # no buffer, no overlap


@pytest.mark.parametrize("buffer", [1, 2, 7])
def test_buffer_model_is_the_line_of_one_worker(buffer):
    line = closed_line(1, 1.0, buffer, 0.9, 1.0)
    assert buffer_idle(1 / 0.9, 1.0, buffer) == pytest.approx(1 - line.utilisation)


def test_buffer_model_tends_to_the_rate_model():
    assert buffer_idle(0.8, 1.0, 300) == pytest.approx(rate_idle(math.inf, 0.8, 1.0))
    assert buffer_idle(1.2, 1.0, 300) == pytest.approx(0.0)

"""Classic stations in closed form, and the two models of input pipelines that the field uses.

Rates are per second, times in seconds. Where given Fractions, `finite_source` and `bounded_queue` answer in Fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from coresim.errors import InputError
from coresim.model.pipeline import Number
from coresim.theory.birth_death import stationary


@dataclass(frozen=True)
class QueueStation:
    """Long-run behaviour of a station: busy fraction of a server, items/s, mean items there, state probabilities."""

    utilisation: Number
    throughput: Number
    population: Number
    probabilities: tuple[Number, ...]


def finite_source(customers: int, servers: int, think: Number, service: Number) -> QueueStation:
    """M/M/c//N, the machine repairman: each of N customers thinks, then needs one of c servers; exponential means.

    With r = service / think, p(n) is proportional to C(N, n) r^n up to c and to C(N, n) n! r^n / (c! c^(n - c))
    beyond (Kleinrock, *Queueing Systems*, vol. 1, 1975, section 3.10 without a limit on the queue); computed by its
    recursion p(n + 1) / p(n) = r (N - n) / min(n + 1, c), which does not overflow.
    """
    births = [(customers - n) / Fraction(1) / think for n in range(customers)]
    deaths = [min(n, servers) / service for n in range(1, customers + 1)]
    return _station(stationary(births, deaths), servers, service)


def bounded_queue(arrivals: Number, services: Number, room: int) -> QueueStation:
    """M/M/1/K: arrivals at one rate, services at another, arrivals lost (or held back) while ``room`` = K are there.

    p(n) = (1 - r) r^n / (1 - r^(K + 1)) with r = arrivals / services, and 1 / (K + 1) for r = 1 (Kleinrock, *Queueing
    Systems*, vol. 1, 1975, section 3.6).
    """
    # Powers of a ratio of at most 1, counted from the likelier end: they cannot overflow.
    growing = arrivals > services
    ratio = services / arrivals if growing else arrivals / services
    powers = [ratio**n for n in range(room + 1)]
    return _station(powers[::-1] if growing else powers, 1, 1 / services)


def rate_idle(fetch: float, prepare: float, accelerator: float) -> float:
    """Idle fraction by rates alone: 1 - min(F, P, G) / G; no variability, no buffers, no shared cores.

    The model of DS-Analyzer (Mohan, Phanishayee, Raniwala and Chidambaram, *Analyzing and Mitigating Data Stalls in DNN
    Training*, PVLDB 14(5), 2021): F fetching, P preprocessing and G ingestion rate, all in the same items/s.
    """
    _positive(fetch, prepare, accelerator)
    return 1 - min(fetch, prepare, accelerator) / accelerator


def buffer_wait(producer: float, consumer: float, buffer: int) -> float:
    """Seconds that a consumer waits per element, by the M/M/1/K model of tf.data's autotuner.

    The wait is p y: the chance that a buffer of n elements is empty times the producer's seconds per element y, with
    p = (1 - x / y) / (1 - (x / y)^(n + 1)), x the consumer's seconds per element, and p = 1 / (n + 1) for x = y; that
    is p(0) of M/M/1/n. Source: ``ComputeWaitTime`` in TensorFlow's ``core/framework/model.cc``; the system is that of
    Murray, Simsa, Klimovic and Indyk, *tf.data: A Machine Learning Data Processing Framework*, PVLDB 14(12), 2021.
    """
    _positive(producer, consumer)
    return float(bounded_queue(1 / producer, 1 / consumer, buffer).probabilities[0]) * producer


def buffer_idle(producing: float, accelerator: float, buffer: int) -> float:
    """Idle fraction by `buffer_wait`, wait / (step + wait), from elements/s produced and taken, and the buffer n.

    It equals p(0) of M/M/1/(n + 1): n elements in the buffer and one in the step. So it is exact for one producer with
    exponential times and n credits (`birth_death.closed_line` with one worker), and knows no shared cores, order, parts
    of a batch or other spread.
    """
    wait = buffer_wait(1 / producing, 1 / accelerator, buffer)
    return wait / (1 / accelerator + wait)


def _station(weights: Sequence[Number], servers: int, service: Number) -> QueueStation:
    total = sum(weights)
    probabilities = tuple(weight / total for weight in weights)
    busy = sum(p * min(n, servers) for n, p in enumerate(probabilities))
    return QueueStation(busy / servers, busy / service, sum(p * n for n, p in enumerate(probabilities)), probabilities)


def _positive(*numbers: float) -> None:
    if not all(number > 0 for number in numbers):
        raise InputError(f"rates and times {numbers!r}: must be positive")

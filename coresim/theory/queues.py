"""The two models of input pipelines that the field uses; rates are per second, times in seconds."""

from __future__ import annotations

from coresim.errors import InputError


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
    is p(0) of M/M/1/n (Kleinrock, *Queueing Systems*, vol. 1, 1975, section 3.6). Source: ``ComputeWaitTime`` in
    TensorFlow's ``core/framework/model.cc``; the system is that of Murray, Simsa, Klimovic and Indyk, *tf.data: A
    Machine Learning Data Processing Framework*, PVLDB 14(12), 2021.
    """
    _positive(producer, consumer)
    # Powers of a ratio of at most 1, counted from the likelier end: they cannot overflow.
    slow = producer > consumer
    ratio = consumer / producer if slow else producer / consumer
    return producer * ratio ** (0 if slow else buffer) / sum(ratio**n for n in range(buffer + 1))


def buffer_idle(producing: float, accelerator: float, buffer: int) -> float:
    """Idle fraction by `buffer_wait`, wait / (step + wait), from elements/s produced and taken, and the buffer n.

    It equals p(0) of M/M/1/(n + 1): n elements in the buffer and one in the step. So it is exact for one producer with
    exponential times and n credits (`closed_line` of `tests/birth_death.py` with one worker), and knows no shared
    cores, order, parts of a batch or other spread.
    """
    wait = buffer_wait(1 / producing, 1 / accelerator, buffer)
    return wait / (1 / accelerator + wait)


def _positive(*numbers: float) -> None:
    if not all(number > 0 for number in numbers):
        raise InputError(f"rates and times {numbers!r}: must be positive")

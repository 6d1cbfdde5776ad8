"""Balanced job bounds: how much of the bottleneck's rate a line with few credits reaches when its times vary.

For a closed network of single-server stations in product form, with N customers, demand D(k) at station k, D their sum,
Dmax the largest and Dave their mean::

    N / (D + (N - 1) Dmax) <= X <= min(1 / Dmax, N / (D + (N - 1) Dave))

Source: Zahorjan, Sevcik, Eager and Galler, *Balanced Job Bound Analysis of Queueing Networks*, CACM 25(2), 1982.

Product form asks for one class of customers and stations that serve first come, first served, in exponential times, or
that share their server among all. Of coresim's lines that is a tandem of single servers with exponential times, nobody
slowed by anybody, and a trainer that only waits for each step (`batch_rate_bounds`). With N credits batch i is
dispatched at the pick-up of batch i - N: no earlier than step i - N - 1 ends, as with N + 1 customers, and no later
than step i - N ends, as with N. All times of such a line grow with those of its dispatches, as it is (max, +) linear
(Baccelli, Cohen, Olsder and Quadrat, *Synchronization and Linearity*, 1992), so X lies between the rates of the two
networks.
"""

from __future__ import annotations

from collections.abc import Sequence

from coresim.errors import InputError
from coresim.model.pipeline import Pipeline


def balanced_job_bounds(demands: Sequence[float], customers: int) -> tuple[float, float]:
    """Least and most customers per second that pass the network; demands in seconds.

    Raises:
        InputError: no customer, or a demand that is not positive.
    """
    if customers < 1 or not demands or min(demands) <= 0:
        raise InputError(f"demands {list(demands)!r} s of {customers} customers: both must be positive")
    total, largest = sum(demands), max(demands)
    crowd, spread = (customers - 1) * largest, (customers - 1) * (total / len(demands))
    return customers / (total + crowd), min(1 / largest, customers / (total + spread))


def batch_rate_bounds(pipeline: Pipeline) -> tuple[float, float] | None:
    """Least and most batches per second, or None where the line is no network in product form (see above)."""
    if not (_is_tandem(pipeline) and _only_waits(pipeline) and _is_undisturbed(pipeline)):
        return None
    phases = [*(stage.phases[0] for stage in pipeline.stages), pipeline.step]
    if any(
        (one.service.distribution, one.repeats, one.split, one.pooled) != ("exponential", 1, 1, 1) for one in phases
    ):
        return None
    times, credits = [phase.service.mean for phase in phases], pipeline.credits or 1
    return balanced_job_bounds(times, credits)[0], balanced_job_bounds(times, credits + 1)[1]


def _is_tandem(pipeline: Pipeline) -> bool:
    alone = pipeline.total_ranks == 1 and pipeline.epoch_batches is None and pipeline.credits is not None
    return alone and bool(pipeline.stages) and all(
        (stage.servers, stage.grain, stage.buffer, len(stage.phases)) == (1, "batch", None, 1)
        for stage in pipeline.stages
    )  # fmt: skip


def _only_waits(pipeline: Pipeline) -> bool:
    trainer = pipeline.trainer
    idle = trainer.consumer.service.is_zero and trainer.launch.service.is_zero
    return idle and trainer.copy_mode == "none" and trainer.run_ahead == 0 and not trainer.inline


def _is_undisturbed(pipeline: Pipeline) -> bool:
    """Each at full speed, however many are at work; start-up is over in the long run."""
    tasks = range(1, pipeline.busiest() + 1)
    rates = (pipeline.core_rate, pipeline.storage_rate, pipeline.accelerator_rate)
    full = pipeline.accelerator_rate(0) == 1 and all(rate(count) == 1 for count in tasks for rate in rates)
    return full and not pipeline.has_quota

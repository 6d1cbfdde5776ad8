"""How remedies transform a scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec

from coresim.model.scenario import Scenario, with_services
from coresim.model.service import ZERO, Service
from coresim.model.storage import from_storage

Numbers = ParamSpec("Numbers")
Transform = Callable[[Scenario], Scenario]


def transform(change: Callable[Concatenate[Scenario, Numbers], Scenario]) -> Callable[Numbers, Transform]:
    """Called without the scenario, the function gives the transform: ``times(step=0.5)`` halves a scenario's step."""

    def with_numbers(*args: Numbers.args, **kwargs: Numbers.kwargs) -> Transform:
        return lambda scenario: change(scenario, *args, **kwargs)

    return with_numbers


@transform
def keys(scenario: Scenario, /, section: str, **values: Any) -> Scenario:
    """Keys of a section of the scenario, set."""
    part: Any = replace(getattr(scenario, section), **values)
    return replace(scenario, **{section: part})


@transform
def times(scenario: Scenario, /, **factors: float) -> Scenario:
    """Named times of the workload or the accelerator, multiplied."""
    for name, factor in factors.items():
        scenario = with_services(scenario, factor, name)
    return scenario


def prefetch_more(scenario: Scenario) -> Scenario:
    """Twice the batches out per worker."""
    return keys("loader", prefetch_factor=2 * scenario.loader.prefetch_factor)(scenario)


@transform
def batch_twice(scenario: Scenario, growth: float) -> Scenario:
    """Twice the samples: per-batch times grow with it, the step by ``growth``, the launch does not.

    Launches are ahead of a device whose step takes longer, so that it does not wait for them.
    """
    return keys("accelerator", lead=0.0)(times(step=growth)(with_batch(scenario, 2 * scenario.workload.batch_size)))


def with_batch(scenario: Scenario, samples: int) -> Scenario:
    """Batches of so many samples: what a batch costs as a whole grows with them, the step stays as it is."""
    own = scenario.workload
    whole = ("collate", "send", "consumer", "pin", "pin_wait", "pages", "copy")
    found = with_services(scenario, samples / own.batch_size, *whole)
    size = None if own.batch_bytes is None else own.batch_bytes * samples / own.batch_size
    return keys("workload", batch_size=samples, batch_bytes=size)(found)


@transform
def on_device(scenario: Scenario, share_left: float, seconds_per_sample: float) -> Scenario:
    """A part of the preparation moves to the accelerator, which needs time for it in every step."""
    extra = seconds_per_sample * scenario.workload.batch_size
    moved = with_services(scenario, share_left, "preprocess")
    return keys("workload", device_preprocess=moved.workload.device_preprocess + extra)(moved)


@transform
def decoder(scenario: Scenario, /, spared: float, **factors: float) -> Scenario:
    """Spare a share of the preparation, at most all that is known to decode; multiply other times."""
    known = scenario.workload.decode_share
    return times(preprocess=1.0 - (spared if known is None else min(spared, known)), **factors)(scenario)


@transform
def decode(scenario: Scenario, share_of_decode_left: float, seconds_per_sample: float) -> Scenario:
    """Move only the decoding: its share as the scenario gives it, else half of the preparation, as JPEG jobs show."""
    share = 0.5 if scenario.workload.decode_share is None else scenario.workload.decode_share
    return on_device(1.0 - share * (1.0 - share_of_decode_left), seconds_per_sample)(scenario)


@transform
def from_tier(scenario: Scenario, name: str) -> Scenario:
    """Reads wait as in a recorded tier; a set whose samples have no known size stays as it is."""
    work = scenario.workload
    if work.fetch.is_zero or work.sample_bytes is None or scenario.host.storage == name:
        return scenario
    return from_storage(keys("host", storage=name, storage_streams=None)(scenario))


def on_cpu(scenario: Scenario) -> Scenario:
    """The step on the cores: it takes them all, and so does preparing, one after the other; nothing is copied."""
    device = scenario.accelerator
    if device.cpu_step is None:
        return scenario
    cores = max(1, round((scenario.host.cores or 1.0) / device.count))
    plain = {"step": device.cpu_step, "launch": ZERO, "sync": "block", "run_ahead": 0, "slowdown": (1.0,)}
    found = keys("workload", consumer=ZERO, pin=ZERO, copy=ZERO, device_preprocess=0.0)(scenario)
    return keys("loader", split=cores)(keys("accelerator", **plain)(found))


@transform
def threads(scenario: Scenario, gil: float) -> Scenario:
    """Threads hand batches over in memory; what holds the interpreter's lock runs one at a time."""
    if scenario.loader.in_process:
        return scenario
    return keys("loader", in_process=True, dispatch="shared", credits="queue", gil=gil)(scenario)


@transform
def remote(scenario: Scenario, seconds_per_sample: float) -> Scenario:
    """Other machines prepare; here a batch is only received, which takes CPU time per sample."""
    return keys("workload", preprocess=Service(seconds_per_sample), fetch=ZERO, collate=ZERO)(scenario)

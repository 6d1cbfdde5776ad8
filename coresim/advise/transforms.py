"""How remedies transform a scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coresim.model.scenario import Scenario, with_services
from coresim.model.service import ZERO, Service
from coresim.model.storage import from_storage

Transform = Callable[[Scenario], Scenario]


def workload(**factors: float) -> Transform:
    """Named times of the workload, multiplied."""

    def change(scenario: Scenario) -> Scenario:
        times = {name: getattr(scenario.workload, name).scaled(factor) for name, factor in factors.items()}
        return replace(scenario, workload=replace(scenario.workload, **times))

    return change


def keys(section: str, **values: Any) -> Transform:
    """Keys of a section of the scenario, set."""

    def change(scenario: Scenario) -> Scenario:
        part: Any = replace(getattr(scenario, section), **values)
        return replace(scenario, **{section: part})

    return change


def prefetch_more(scenario: Scenario) -> Scenario:
    """Twice the batches out per worker."""
    return keys("loader", prefetch_factor=2 * scenario.loader.prefetch_factor)(scenario)


def step(factor: float) -> Transform:
    """The step's time, multiplied."""
    return lambda scenario: with_services(scenario, factor, "step")


def batch_twice(growth: float) -> Transform:
    """Twice the samples: per-batch times grow with it, the step by ``growth``, the launch does not.

    Launches are ahead of a device whose step takes longer, so that it does not wait for them.
    """

    def change(scenario: Scenario) -> Scenario:
        found = step(growth)(with_batch(scenario, 2 * scenario.workload.batch_size))
        return replace(found, accelerator=replace(found.accelerator, lead=0.0))

    return change


def with_batch(scenario: Scenario, samples: int) -> Scenario:
    """Batches of so many samples: what a batch costs as a whole grows with them, the step stays as it is."""
    own = scenario.workload
    whole = ("collate", "send", "consumer", "pin", "pin_wait", "pages", "copy")
    found = with_services(scenario, samples / own.batch_size, *whole)
    size = None if own.batch_bytes is None else own.batch_bytes * samples / own.batch_size
    return replace(found, workload=replace(found.workload, batch_size=samples, batch_bytes=size))


def on_device(share_left: float, seconds_per_sample: float) -> Transform:
    """A part of the preparation moves to the accelerator, which needs time for it in every step."""

    def change(scenario: Scenario) -> Scenario:
        extra = seconds_per_sample * scenario.workload.batch_size
        moved = workload(preprocess=share_left)(scenario)
        device = moved.workload.device_preprocess + extra
        return replace(moved, workload=replace(moved.workload, device_preprocess=device))

    return change


def decoder(spared: float, **factors: float) -> Transform:
    """A share of the preparation is spared, at the most all that is known to decode; other times are multiplied."""

    def change(scenario: Scenario) -> Scenario:
        known = scenario.workload.decode_share
        return workload(preprocess=1.0 - (spared if known is None else min(spared, known)), **factors)(scenario)

    return change


def decode(share_of_decode_left: float, seconds_per_sample: float) -> Transform:
    """Only the decoding moves: its share as the scenario gives it, else the half of it that JPEG jobs show."""

    def change(scenario: Scenario) -> Scenario:
        share = 0.5 if scenario.workload.decode_share is None else scenario.workload.decode_share
        return on_device(1.0 - share * (1.0 - share_of_decode_left), seconds_per_sample)(scenario)

    return change


def no_fetch(scenario: Scenario) -> Scenario:
    """Every read from memory."""
    return replace(scenario, workload=replace(scenario.workload, fetch=ZERO))


def from_tier(name: str) -> Transform:
    """Reads wait as in a recorded tier; a set whose samples have no known size stays as it is."""

    def change(scenario: Scenario) -> Scenario:
        work = scenario.workload
        if work.fetch.is_zero or work.sample_bytes is None or scenario.host.storage == name:
            return scenario
        host = replace(scenario.host, storage=name, storage_streams=None)
        return from_storage(replace(scenario, host=host))

    return change


def on_cpu(scenario: Scenario) -> Scenario:
    """The step on the cores: it takes them all, and so does preparing, one after the other; nothing is copied."""
    device, work = scenario.accelerator, scenario.workload
    if device.cpu_step is None:
        return scenario
    cores = max(1, round((scenario.host.cores or 1.0) / device.count))
    plain = replace(device, step=device.cpu_step, launch=ZERO, sync="block", run_ahead=0, slowdown=(1.0,))
    return replace(
        scenario,
        accelerator=plain,
        workload=replace(work, consumer=ZERO, pin=ZERO, copy=ZERO, device_preprocess=0.0),
        loader=replace(scenario.loader, split=cores),
    )


def threads(gil: float) -> Transform:
    """Threads hand batches over in memory; what holds the interpreter's lock runs one at a time."""

    def change(scenario: Scenario) -> Scenario:
        if scenario.loader.in_process:
            return scenario
        return keys("loader", in_process=True, dispatch="shared", credits="queue", gil=gil)(scenario)

    return change


def remote(seconds_per_sample: float) -> Transform:
    """Other machines prepare; here a batch is only received, which takes CPU time per sample."""

    def change(scenario: Scenario) -> Scenario:
        receive = Service(seconds_per_sample)
        return replace(scenario, workload=replace(scenario.workload, preprocess=receive, fetch=ZERO, collate=ZERO))

    return change

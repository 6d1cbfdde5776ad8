"""Time one training step on the accelerator, and measure what it costs the host's cores.

A fresh Python process times the step, so that a crash or an out-of-memory kill gives one message here. Usually several
processes do, one after the other, so that their start-up state (allocator, autotuning, memory placement) is sampled. No
process outlives the call.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coresim import stats
from coresim.device import models
from coresim.device.emulated import open_device
from coresim.device.interface import Device, batch_bytes, map_tensors
from coresim.errors import CoresimError, InputError
from coresim.measure import training_step
from coresim.measure.machine_speed import MOST_OTHERS
from coresim.measure.processes import Child, DeathError, HangError, Link
from coresim.measure.protocol import others_meter
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning

#: If importing the user's module takes this long, s, one process makes all repeats. Three would take longer than all
#: other measurements, and the module may build a data set.
SLOW_S = 10.0
#: Seconds per repeat after which coresim gives a process up; one process may make all repeats of a user's own step.
TIMEOUT = 300.0
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "MemoryError")


@dataclass(frozen=True)
class AcceleratorConfig:
    """What to measure.

    Attributes:
        device: one of `coresim.device.emulated.open_device`'s.
        model: one of `coresim.device.models.NETS`; not used with ``step``.
        batch_size, image_size: samples in a synthetic batch, and pixels along each side of a synthetic image.
        precision: ``fp32`` (torch's default) or ``bf16``; a user's own step sets its own.
        step: ``package.module:name`` of the user's step or of a factory of one, see ``models.as_step``.
        batch: the file of a collated host batch, as tensors, for it; absent, a synthetic image batch.
        processes: fresh processes, the independent repeats.
        repeats: how many times each process measures everything.
        steps: steps timed for each quantity in each repeat.
        seconds: time allowed for each quantity in each repeat; fewer steps are timed where they are long,
            but never fewer than `coresim.measure.training_step.FEWEST_STEPS`.
        busy: numbers of busy processes; absent, a few up to all cores of this process's affinity.
    """

    device: str = "cuda"
    model: str = "resnet50"
    batch_size: int = 64
    image_size: int = 224
    precision: str = "fp32"
    step: str | None = None
    batch: Path | None = None
    processes: int = 3
    repeats: int = 1
    steps: int = 30
    seconds: float = 5.0
    busy: tuple[int, ...] | None = None


@dataclass(frozen=True)
class AcceleratorResult:
    """What was measured.

    Attributes:
        measurements: in the order taken; every name once.
        synchronises: the step function itself waits for the device before it returns.
        settled: in every process the step time was stable before timing began.
        provenance: device, torch's version, step, precision: what it ran on and with.
        others: cores that other programs kept busy meanwhile.
    """

    measurements: tuple[Measurement, ...]
    synchronises: bool
    settled: bool
    provenance: Mapping[str, str]
    others: float = 0.0

    def __getitem__(self, name: str) -> Measurement:
        """The measurement of that name; KeyError where it was not taken."""
        return {measurement.name: measurement for measurement in self.measurements}[name]

    def busy_warnings(self) -> Iterator[HostWarning]:
        """A warning where other programs had some of the cores; it matters to a step that runs on the CPU."""
        if self.others > MOST_OTHERS * len(os.sched_getaffinity(0)):
            value = f"other programs used {self.others:.1f} cores"
            remedy = "close other programs and measure again; threads of a step wait long for one that has no core"
            yield HostWarning("the machine was busy while the step was timed", value, remedy)


def measure_accelerator(config: AcceleratorConfig) -> AcceleratorResult:
    """Measure in ``config.processes`` fresh processes, one after the other, or in one if that needs `SLOW_S` to begin.

    Raises:
        InputError: the step cannot be imported, or it fails.
        MissingPartError: no torch, or no CUDA device.
        CoresimError: out of memory, a crash, or no end in time.
    """
    found = [_in_fresh_process(config)]
    while sum(len(result.measurements[0].values) for result in found) < config.processes * config.repeats:
        found.append(_in_fresh_process(config))
    return merge(found)


def measure_here(config: AcceleratorConfig) -> AcceleratorResult:
    """All measurements in this process, so many times; `measure_accelerator` uses fresh ones, which differ more."""
    began, others = time.monotonic(), others_meter()
    step = models.user_step(config.step) if config.step else None
    repeats = config.repeats * (config.processes if time.monotonic() - began > SLOW_S else 1)
    device = open_device(str(getattr(step, "device", None) or config.device))
    step = device.step(config.model, config.precision) if step is None else step
    if config.batch is None:
        batch = models.synthetic_batch(config.batch_size, config.image_size)
    else:
        batch = models.load_torch().load(config.batch, weights_only=False)
    if batch_bytes(batch) == 0:
        raise InputError(f"the batch ({type(batch).__name__}) holds no tensors: collate it before it is measured")
    found = merge([_measured(config, step, batch, device) for _ in range(repeats)])
    return replace(found, others=others())


def _measured(config: AcceleratorConfig, step: models.Step, host_batch: Any, device: Device) -> AcceleratorResult:
    batch = map_tensors(host_batch, device.copy)
    levels = training_step.busy_levels(len(os.sched_getaffinity(0))) if config.busy is None else config.busy
    warm, _, found = training_step.measure_training(
        step, batch, host_batch, device, seconds=config.seconds, steps=config.steps, levels=levels
    )
    waits = training_step.waits_for_device(step, batch, device)
    provenance = {
        "device": device.name(),
        "torch": str(models.load_torch().__version__),
        "step": config.step or models.describe_model(config.model),
        "precision": config.precision if config.step is None else "set by the step",
    }
    return AcceleratorResult(tuple(found), waits, warm.settled, provenance)


def merge(results: Sequence[AcceleratorResult]) -> AcceleratorResult:
    """Join the results of several processes: one inner tuple of values each; the step waits if most say so."""
    joined = []
    for measurement in results[0].measurements:
        parts = [result[measurement.name] for result in results]
        how = "; ".join(dict.fromkeys(part.how for part in parts))
        values = tuple(values for part in parts for values in part.values)
        joined.append(replace(measurement, values=values, how=how))
    waits = 2 * sum(result.synchronises for result in results) > len(results)
    settled = all(result.settled for result in results)
    others = stats.mean([result.others for result in results])
    return AcceleratorResult(tuple(joined), waits, settled, results[0].provenance, others)


def _in_fresh_process(config: AcceleratorConfig) -> AcceleratorResult:
    with Child(step_job, config, limited=False) as child:
        result = result_of(child, (config.processes if config.step else 1) * config.repeats * TIMEOUT)
        child.finish()
    return result


def result_of(child: Child, seconds: float) -> AcceleratorResult:
    """The answer of the process that runs `step_job`, within so many seconds."""
    try:
        result: AcceleratorResult = child.receive(seconds)[1]
    except HangError as error:
        raise CoresimError(
            f"measuring the training step did not end within {seconds:g} s: use a smaller --batch-size"
        ) from error
    except DeathError as error:
        if error.code == -signal.SIGKILL:
            raise _out_of_memory("the system killed the process") from error
        raise CoresimError(
            f"the process that measured the training step died (exit status {error.code}: "
            f"{error.last or 'no message'}): run the step by itself, or use a smaller --batch-size"
        ) from error
    return result


def step_job(_: Link, config: AcceleratorConfig) -> AcceleratorResult:
    """`measure_here` in a process of its own; an error names the user's part in it."""
    try:
        models.load_torch()
        return measure_here(config)
    except CoresimError:
        raise
    except Exception as error:
        words = models.one_line(error)
        if any(sign in words for sign in _OUT_OF_MEMORY):
            raise _out_of_memory(f"{config.device}, batch size {config.batch_size}: {words}") from error
        if config.step is None:
            raise CoresimError(f"the {config.model} step failed on {config.device}: {words}") from error
        raise InputError(f"training step {config.step} failed: {words}; run it once in Python by itself") from error


def _out_of_memory(where: str) -> CoresimError:
    return CoresimError(f"out of memory while measuring the training step ({where}): use a smaller --batch-size")

"""Transfer a job's times from the machine that measured them to another: a stated model, with a wider interval.

* *Step time.* On the same chip as measured; where its form or memory size differs, with a relative standard
  uncertainty of 0.1 more. On another chip only what is known: the workload's own ``steps``, else its ``model`` in the
  catalogue of recorded steps, with that record's uncertainty. Nothing is scaled by a GPU's peak rate.
* *CPU times* (preparation, collation, hand-over, pinning, launch, start of a worker). On the same CPU as measured. On
  another one in the inverse ratio of the two in ``cpu_speed``, if both are there (uncertainty 0.1 more: another job may
  have another ratio); else as they are, with 0.3 more. A CPU that is not known counts as another. 0.3 is a judgement:
  one core of the servers of the last ten years is within a factor of about 1.6 of their middle.
* *Cores that slow one another down.* s(k) as measured; on another CPU with 0.15 more, a judgement.
* *Storage* as measured; where a recorded tier is named, with what the other machine's memory misses of the data set.
* *Memory* is the other machine's, and its /dev/shm is not known: a container gets what it asks for.

So that one batch is one draw and not hundreds, the times of a batch of `MANY` samples or more are drawn as gamma times
of the same mean and spread (`condensed`): their sum over the batch keeps its mean and variance. ``recommend``, not a
fleet plan, shows what a few very slow samples do to one batch.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from coresim.errors import InputError
from coresim.fleet.description import Candidate, FleetWorkload
from coresim.machines.catalogue import find_step
from coresim.machines.machines import same_gpu
from coresim.model.scenario import Scenario
from coresim.model.service import Service
from coresim.model.storage import from_storage
from coresim.units import format_duration

OTHER_FORM, OTHER_CPU, KNOWN_RATIO, OTHER_SPEED = 0.1, 0.3, 0.1, 0.15
MANY = 16
CPU_TIMES = ("preprocess", "collate", "send", "consumer", "pin", "pages")


@dataclass(frozen=True)
class Transferred:
    """A job on another machine: all that its prediction needs besides the job's scenario and the cores.

    Attributes:
        step: its step time there.
        cpu_time: CPU times there over those measured.
        cpu_uncertainty, speed_uncertainty: relative standard uncertainties that transferring adds.
        gpu_count: GPUs of the host.
        notes: what was transferred, and how, one line each; empty where nothing was. They change nothing.
        memory_bytes: of the host; None where not known.
    """

    step: Service
    cpu_time: float
    cpu_uncertainty: float
    speed_uncertainty: float
    gpu_count: int
    notes: tuple[str, ...] = field(default=(), compare=False)
    memory_bytes: float | None = None

    def scenario(self, base: Scenario, condense: bool = True) -> Scenario:
        """The job on that machine, without the machine's cores; ``condense``: with times as `condensed` makes them."""
        base = self._housed(base)
        workload = base.workload
        times: dict[str, Any] = {"fetch": workload.fetch}
        times |= {name: self._cpu(getattr(workload, name)) for name in CPU_TIMES}
        times |= {name: getattr(workload, name) * self.cpu_time for name in ("startup", "worker_startup")}
        if condense:
            times |= {name: condensed(times[name], workload.batch_size) for name in ("fetch", "preprocess")}
        own = base.accelerator
        # What an idle device waits for launches is known of the measured step alone.
        lead = own.lead if self.step == own.step else 0.0
        device = replace(own, step=self.step, launch=self._cpu(own.launch), lead=lead, count=self.gpu_count)
        spread = tuple(math.hypot(own, self.speed_uncertainty) for own in base.host.speed_uncertainty)
        host = replace(base.host, cores=None, machine_cores=None, speed_uncertainty=spread)
        return replace(base, workload=replace(workload, **times), accelerator=device, host=host)

    def _housed(self, base: Scenario) -> Scenario:
        """With that machine's memory, and what its page cache misses where fetching is a recorded tier's."""
        named = base.host.storage is not None and base.workload.sample_bytes is not None
        told = named and from_storage(base).workload.fetch == base.workload.fetch
        found = replace(base, host=replace(base.host, memory_bytes=self.memory_bytes, shm_bytes=None))
        return from_storage(found) if told else found

    def _cpu(self, service: Service) -> Service:
        if service.is_zero:
            return service
        scaled = service if self.cpu_time == 1.0 else service.scaled(self.cpu_time)
        return _wider(scaled, self.cpu_uncertainty)


def condensed(service: Service, samples: int) -> Service:
    """The service as gamma times of its mean and spread, whose sum over many samples is one draw.

    Measured values without an uncertainty of their own get that of their mean, which resampling them would show.
    """
    if samples < MANY or service.distribution not in ("lognormal", "values") or not service.cv:
        return service
    own = service.cv / math.sqrt(len(service.values)) if service.values else 0.0
    return Service(service.mean, service.cv, "gamma", uncertainty=service.uncertainty or own)


def transfer(workload: FleetWorkload, candidate: Candidate, cpu_speed: dict[str, float]) -> Transferred:
    """The job on that kind of host.

    Raises:
        InputError: its step time on that GPU is not known; the remedy is named.
    """
    step, about_step = _step(workload, candidate.gpu)
    cpu_time, uncertainty, about_cpu = _cpu(workload.cpu, candidate.cpu, cpu_speed)
    speed = OTHER_SPEED if uncertainty else 0.0
    notes = tuple(note for note in (about_step, about_cpu) if note)
    base = workload.scenario
    # Machines that differ in what decides nothing are one simulation.
    decides = base.workload.batch_bytes is not None or base.host.storage is not None
    memory = candidate.memory_bytes if decides else None
    return Transferred(step, cpu_time, uncertainty, speed, candidate.gpu_count, notes, memory)


def _wider(service: Service, uncertainty: float) -> Service:
    return replace(service, uncertainty=math.hypot(service.uncertainty, uncertainty))


def _step(workload: FleetWorkload, gpu: str | None) -> tuple[Service, str]:
    own = workload.scenario.accelerator.step
    if gpu is None:
        return own, "the site's GPU is not said: taken for the workload's"
    given = next((service for name, service in workload.steps.items() if same_gpu(name, gpu)), None)
    if given is not None:
        return given, f"step on {gpu} as given: {format_duration(given.mean)}"
    if workload.gpu is not None and same_gpu(workload.gpu, gpu):
        if _form(workload.gpu) == _form(gpu):
            return own, ""
        return _wider(own, OTHER_FORM), f"step of {workload.gpu} taken for {gpu}, ±20 % more"
    if workload.model is None:
        what = f"measured on {workload.gpu}" if workload.gpu else "of a GPU that the input does not name"
        raise InputError(f"no step time on {gpu} ({what}): add it to steps, or name the model for the catalogue")
    found = find_step(gpu, workload.model, workload.scenario.workload.batch_size, workload.precision)
    note = f"step on {gpu} from the catalogue: {format_duration(found.step_time_s)} ±{found.uncertainty:.0%}"
    return Service(found.step_time_s, uncertainty=found.uncertainty / 2), note


def _form(gpu: str) -> set[str]:
    """What sets apart the forms of one chip: ``sxm``, ``pcie``, ``nvl`` and the memory size."""
    return set(re.findall(r"sxm|pcie|nvl|\d+gb", gpu.lower().replace(" ", "")))


def _cpu(measured: str | None, there: str | None, speeds: dict[str, float]) -> tuple[float, float, str]:
    if measured is not None and there is not None:
        if _plain(measured) == _plain(there):
            return 1.0, 0.0, ""
        known = {_plain(name): speed for name, speed in speeds.items()}
        if {_plain(measured), _plain(there)} <= known.keys():
            ratio = known[_plain(measured)] / known[_plain(there)]
            return ratio, KNOWN_RATIO, f"CPU times x {ratio:.3g} from {measured} to {there} (cpu_speed), ±20 % more"
    pair = f"{measured or 'a CPU that is not named'} to {there or 'a CPU that is not named'}"
    return 1.0, OTHER_CPU, f"CPU times transferred unchanged from {pair}, ±60 % more; cpu_speed narrows it"


def _plain(cpu: str) -> str:
    """A CPU's name without what vendors and kernels write around it: ``AMD EPYC 7742 64-Core Processor``."""
    text = cpu.lower().replace("(r)", "").replace("(tm)", "").partition("@")[0]
    words = [word for word in text.split() if word not in ("amd", "intel", "cpu", "processor") and "-core" not in word]
    return " ".join(words)

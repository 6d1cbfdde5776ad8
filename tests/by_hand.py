"""A profile whose values are few and round, so that what follows from them can be told by hand."""

from __future__ import annotations

from coresim.model.host import CoreTerm, HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile import (
    AcceleratorSource,
    Profile,
    Provenance,
)
from coresim.model.warning import HostWarning

HOST = HostFacts(
    terms=(CoreTerm("affinity", 6.0, "six"), CoreTerm("quota", 3.5, "a quota")),
    threads_per_core=2,
    memory_bytes=8_000_000,
    memory_limit_bytes=6_000_000,
    shm_bytes=64_000,
    hints={"SLURM_CPUS_PER_TASK": "6"},
)


GIVEN = AcceleratorSource(kind="given", provenance="given: 50 ms", uncertainty=0.0, step_time_s=0.05)


TIMED = AcceleratorSource(kind="measured", provenance="measured: here", uncertainty=0.02, name="some GPU")


STEPS = {"accelerator.step": ((0.10, 0.12),), "accelerator.launch": ((0.01,),), "copy.pinned": ((0.003,),)}


def taken(name: str, values: tuple[tuple[float, ...], ...], unit: str = "s") -> Measurement:
    return Measurement(name, unit, values, "by hand")


def profile(source: AcceleratorSource = GIVEN, **more: tuple[tuple[float, ...], ...]) -> Profile:
    values: dict[str, tuple[tuple[float, ...], ...]] = {
        "prepare.sample": ((0.015, 0.025), (0.017, 0.027)),
        "prepare.step.fetch": ((0.0015,), (0.0015,)),
        "prepare.step.decode": ((0.015,), (0.017,)),
        "prepare.collate": ((0.005,), (0.007,)),
        "prepare.send": ((0.003,), (0.003,)),
        "receive.cpu": ((0.002, 0.004), (0.002, 0.004)),
        "receive.release": ((0.001,), (0.001,)),
        "receive.rest_free": ((0.001,), (0.003,)),
        "worker.start": ((0.02,), (0.04,)),
        "worker.first": ((0.2,), (0.4,)),
        "worker.private": ((5e6,), (7e6,)),
        "machine.speed": ((1.0, 1.0), (1.0, 1.0)),
    } | {name.replace("__", "."): found for name, found in more.items()}
    return Profile(
        workload="by hand",
        loader="a loader",
        batch_size=8,
        samples=100,
        bytes_per_sample=1000.0,
        bytes_per_batch=4096,
        arrays_per_batch=2,
        host=HOST,
        accelerator=source,
        provenance=Provenance(
            "0.1", "coresim measure", "2024-01-01T00:00:00+00:00", HOST.fingerprint, 0, "3.11", "2.0", "2.13"
        ),
        speed=(1.0, 0.9, 0.8),
        speed_uncertainty=(0.05,),
        speed_provenance="nothing",
        warnings=(HostWarning("busy", "1 core", "stop it"),),
        measurements=tuple(taken(name, found) for name, found in values.items()),
    )


def with_steps(source: AcceleratorSource = TIMED, **more: tuple[tuple[float, ...], ...]) -> Profile:
    found = profile(source, **STEPS, **more)
    assert all(name in {m.name for m in found.measurements} for name in STEPS)
    return found

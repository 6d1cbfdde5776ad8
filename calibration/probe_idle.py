"""What a CUDA device computes while it is fed: ``python calibration/probe_idle.py`` (one CUDA device, one minute).

Three answers to how idle the device is, for the same steps: ``kernels``, the share of the time in which no kernel runs,
by torch's profiler, which records every kernel; ``au``, the share that steps launched back to back do not need
(`coresim.validate.predict.idle_share`); ``events``, the share in which the device is in no step by the events around
each one. The profiler makes launches longer, so more waits for them than without it.

``step_ms``: a step launched back to back; ``kernels_ms``: kernels of a step; ``launch_ms``: the wall time of copying
and launching.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import closing
from typing import Any

from probing import save

from coresim import stats
from coresim.device.models import load_torch
from coresim.measure.rig import Rig
from coresim.measure.subject import Layout, Pipe
from coresim.measure.topology import on_cpus
from coresim.measure.training_step import time_steps, warm_up
from coresim.validate.predict import idle_share
from coresim.validate.training import Training
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

#: Workers, cores, whether they are threads in stages: few and many of each.
SETTINGS = ((4, 16, False), (10, 16, False), (16, 16, False), (4, 4, False), (4, 16, True), (8, 16, True))
BATCH, STEPS, WARM_UP = 64, 30, 10


class Fed:
    """The model in training, and what a step takes without a loader."""

    def __init__(self, device: str) -> None:
        self.training = Training("resnet50", "bf16", device, BATCH)
        resident = self.training._on_device(self.training._batch)
        warm = warm_up(self.training._step, resident, self.training.device)
        self.step_s = stats.mean(time_steps(self.training._step, resident, self.training.device, 3 * STEPS))
        self.again = lambda: self.training._step(resident)
        self.note = str(warm)

    def by_loader(self, pipe: Pipe) -> dict[str, Any]:
        """Steps on the loader's batches, one ahead of the device."""
        device, marks, launches = self.training.device, [], []

        def step() -> None:
            batch, _ = pipe.next()
            before = device.wall()
            marks.append(self.training.train(batch))
            launches.append(device.wall() - before)
            if len(marks) > 1:
                device.synchronise(marks[-2][1])

        if hasattr(pipe, "transfer"):
            pipe.transfer = self.training.transfer  # type: ignore[attr-defined]
        for _ in range(WARM_UP):
            step()
        marks.clear()
        launches.clear()
        kernels = self._kernels(step)
        spans = [device.elapsed(begin, end) for begin, end in marks]
        whole = device.elapsed(marks[0][0], marks[-1][1])
        return {
            "events": round(1.0 - sum(spans) / whole, 3),
            "au": round(idle_share(self.step_s, whole / STEPS), 3),
            "kernels": round(1.0 - kernels / whole, 3),
            "kernels_ms": round(1e3 * kernels / STEPS, 2),
            "event_ms": round(1e3 * stats.mean(spans), 2),
            "period_ms": round(1e3 * whole / STEPS, 2),
            "launch_ms": round(1e3 * stats.mean(launches), 2),
        }

    def alone(self) -> dict[str, Any]:
        """The kernels of steps launched back to back."""
        return {"step_ms": round(1e3 * self.step_s, 2), "kernels_ms": round(1e3 * self._kernels(self.again) / STEPS, 2)}

    def _kernels(self, step: Any) -> float:
        """Seconds in which a kernel runs, over so many steps."""
        torch = load_torch()
        self.training.device.synchronise()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(STEPS):
                step()
            self.training.device.synchronise()
        found = seen.profiler.kineto_results.events()
        there = [e for e in found if "CUDA" in str(e.device_type()) and not e.is_user_annotation()]
        kernels = [e for e in there if not e.name().startswith(("Mem", "Context"))]
        return union((e.start_ns(), e.start_ns() + e.duration_ns()) for e in kernels) / 1e9


def union(spans: Any) -> float:
    """The length of all spans together, what overlaps counted once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def main(device: str = "cuda") -> None:
    """Run all settings and write the record."""
    torch = load_torch()
    with tempfile.TemporaryDirectory() as folder:
        spec = WorkloadSpec(target_of("images"), folder, BATCH)
        spec.make()
        rig = Rig(spec)
        fed = Fed(device)
        found: list[dict[str, Any]] = [{"what": f"back to back, after {fed.note}"} | fed.alone()]
        for workers, cores, threads in SETTINGS:
            layout = Layout(workers, pin_memory=not threads)
            with (
                on_cpus(sorted(os.sched_getaffinity(0))[:cores]),
                closing(rig.subject(threads).open(layout, 1)) as pipe,
            ):
                kind = "threads in stages" if threads else "pinned"
                found.append({"workers": workers, "cores": cores, "kind": kind} | fed.by_loader(pipe))
            print(found[-1], flush=True)
    save("idle", f"torch {torch.__version__} on {fed.training.device.name()}", found)


if __name__ == "__main__":
    main(*sys.argv[1:])

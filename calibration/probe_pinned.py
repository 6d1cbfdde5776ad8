"""What a trainer waits for a pinned batch: ``python calibration/probe_pinned.py`` (a CUDA device, 16 cores, a minute).

A loader of pictures pins, and the trainer takes its batches: with one and two workers as a calibration does, with more
beside real training. Of each hand-over it is noted whether the batch was pinned before the trainer asked for it
(``there``), or the trainer waited and was woken (``woken``), and what was waited beyond the trainer's CPU time. With
``switch_ms``, the time after which a thread asks for the interpreter's lock, ten times shorter, everything runs again:
a wait for the lock would be shorter, too.

``probes/pinned.json`` was recorded when a batch counted as pinned before torch's thread had let go of what the worker
sent, so its ``woken`` has that time: the switch does not matter, and where the trainer does not wait it is not there.
``probes/pinned-emulated.json`` is of an emulated device on two cores, with a batch that counts as pinned afterwards.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from probing import save

from coresim import stats
from coresim.device.models import load_torch
from coresim.measure.pacing import Pacing
from coresim.measure.rig import Rig
from coresim.measure.subject import Layout
from coresim.measure.training_step import measure_launches, time_steps, warm_up
from coresim.measure.trial import Trial, run_trial
from coresim.validate.training import Training, run_training
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

CALIBRATED, TRAINED = (1, 2), (6, 12, 16)
BATCH, STEPS, SECONDS = 64, 40, 3.0
#: Step times over what the workers need for a batch.
RATIOS = (0.6, 1.0)
SWITCHES = (0.005, 0.0005)


def hand_overs(trial: Trial) -> dict[str, Any]:
    """The hand-overs of both kinds: how many, and what they were waited for beyond CPU time, ms."""
    found: dict[str, list[float]] = {"there": [], "woken": []}
    for step, note in zip(trial.steps, trial.notes, strict=True):
        waited = step.got - max(step.asked, note.there) - step.cpu
        found["there" if note.there <= step.asked else "woken"].append(1e3 * max(0.0, waited))
    return {kind: summary(waits) for kind, waits in found.items() if waits}


def summary(values: Sequence[float]) -> dict[str, float]:
    """How many there are, the least, the median and the most."""
    return {"count": len(values), "least": min(values), "median": stats.median(values), "most": max(values)}


def step_of(training: Training) -> dict[str, float]:
    """Medians of a step without a loader: on the device, back to back, and the CPU time of a launch, ms."""
    resident = training._on_device(training._batch)
    warm_up(training._step, resident, training.device)
    steps = time_steps(training._step, resident, training.device, 12)
    launch, _ = measure_launches(training._step, resident, training.device, 12)
    return {"step_ms": 1e3 * stats.median(steps), "launch_ms": 1e3 * stats.median(launch.flat)}


def calibrated(rig: Rig, workers: int, batch_s: float | None) -> Trial:
    """The loader as a calibration runs it: without a pause, with pauses like steps, after rests."""
    with closing(rig.subject(threads=False).open(Layout(workers, pin_memory=True), 1)) as pipe:
        return run_trial(pipe, Pacing(workers, SECONDS, batch_s, RATIOS, lambda done: None, pipe), warm_up=1)


def trained(rig: Rig, training: Training, workers: int) -> Trial:
    """Real training, one step ahead of the device."""
    with closing(rig.subject(threads=False).open(Layout(workers, pin_memory=True), 1)) as pipe:
        return run_training(pipe, training, 2 * workers + 4, STEPS, run_ahead=1)


def main(device: str = "cuda", model: str = "resnet50", batch: str = str(BATCH)) -> None:
    """Run everything and write the record."""
    with tempfile.TemporaryDirectory() as folder:
        spec = WorkloadSpec(target_of("images"), folder, int(batch))
        spec.make()
        rig = Rig(spec)
        training = Training(model, "bf16", device, int(batch))
        found: list[dict[str, Any]] = [{"what": "step"} | step_of(training)]
        with training.device.loading():
            for switch in SWITCHES:
                sys.setswitchinterval(switch)
                batch_s = None
                for workers in CALIBRATED:
                    trial = calibrated(rig, workers, batch_s)
                    batch_s = batch_s or stats.median([note.made - note.began for note in trial.notes])
                    known = {"what": "calibration", "workers": workers, "switch_ms": 1e3 * switch}
                    found.append(known | hand_overs(trial))
                for workers in TRAINED:
                    trial = trained(rig, training, workers)
                    launch_ms = 1e3 * stats.median([step.launch for step in trial.steps])
                    times = {"period_ms": 1e3 * trial.seconds_per_step, "launch_ms": launch_ms}
                    known = {"what": "training", "workers": workers, "switch_ms": 1e3 * switch}
                    found.append(known | times | hand_overs(trial))
        version = load_torch().__version__
        name = "pinned" if device == "cuda" else "pinned-emulated"
        save(name, f"torch {version} on {training.device.name()}", [rounded(run) for run in found])


def rounded(run: dict[str, Any]) -> dict[str, Any]:
    """The same with times to a hundredth of a millisecond."""
    return {key: _rounded(value) for key, value in run.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return rounded(value)
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    main(*sys.argv[1:])

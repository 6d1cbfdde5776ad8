"""The remedies: each changes the scenario, and rests on something.

``measured`` is the scenario's own numbers alone, ``recorded`` a table of ours, of another machine, ``assumed`` a range
that is stated, for want of a measurement. What is not measured has a gentle and a hopeful change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coresim.model.scenario import Scenario
from coresim.model.service import ZERO, Service

Change = Callable[[Scenario], Scenario]


@dataclass(frozen=True)
class Remedy:
    """One thing to do.

    Attributes:
        name: as on the command line.
        what: what changes.
        rests: ``measured``, ``recorded`` or ``assumed``.
        basis: the numbers of the change and where they come from.
        price: what it costs besides.
        changes: the scenario after it: one change, or a gentle and a hopeful one.
        more: ``workers`` or ``cores`` where more of them is the remedy.
    """

    name: str
    what: str
    rests: str
    basis: str
    price: str
    changes: tuple[Change, ...]
    more: str = ""


def _workload(**factors: float) -> Change:
    """Named times of the workload, multiplied."""

    def change(scenario: Scenario) -> Scenario:
        times = {name: getattr(scenario.workload, name).scaled(factor) for name, factor in factors.items()}
        return replace(scenario, workload=replace(scenario.workload, **times))

    return change


def _loader(**fields: object) -> Change:
    return lambda scenario: replace(scenario, loader=replace(scenario.loader, **fields))  # type: ignore[arg-type]


def _prefetch_more(scenario: Scenario) -> Scenario:
    return _loader(prefetch_factor=2 * scenario.loader.prefetch_factor)(scenario)


def _step(factor: float) -> Change:
    return lambda scenario: replace(
        scenario, accelerator=replace(scenario.accelerator, step=scenario.accelerator.step.scaled(factor))
    )


def _batch_twice(scenario: Scenario) -> Scenario:
    """Twice the samples: per-batch times and the step grow with it, the launch does not."""
    workload = scenario.workload
    times = {name: getattr(workload, name).scaled(2.0) for name in ("collate", "send", "consumer", "pin", "copy")}
    size = None if workload.batch_bytes is None else 2 * workload.batch_bytes
    grown = replace(workload, batch_size=2 * workload.batch_size, batch_bytes=size, **times)
    return _step(2.0)(replace(scenario, workload=grown))


def _on_device(share_left: float, seconds_per_sample: float) -> Change:
    """A part of the preparation moves to the accelerator, which needs time for it in every step."""

    def change(scenario: Scenario) -> Scenario:
        extra = seconds_per_sample * scenario.workload.batch_size
        moved = _workload(preprocess=share_left)(scenario)
        device = moved.workload.device_preprocess + extra
        return replace(moved, workload=replace(moved.workload, device_preprocess=device))

    return change


def _decode(share_of_decode_left: float, seconds_per_sample: float) -> Change:
    """Only the decoding moves: its share as the scenario gives it, else the half of it that JPEG jobs show."""

    def change(scenario: Scenario) -> Scenario:
        share = 0.5 if scenario.workload.decode_share is None else scenario.workload.decode_share
        return _on_device(1.0 - share * (1.0 - share_of_decode_left), seconds_per_sample)(scenario)

    return change


def _no_fetch(scenario: Scenario) -> Scenario:
    return replace(scenario, workload=replace(scenario.workload, fetch=ZERO))


def _threads(gil: float) -> Change:
    """Threads hand batches over in memory; what holds the interpreter's lock runs one at a time."""

    def change(scenario: Scenario) -> Scenario:
        if scenario.loader.in_process:
            return scenario
        return _loader(in_process=True, dispatch="shared", credits="queue", gil=gil)(scenario)

    return change


def _remote(seconds_per_sample: float) -> Change:
    """Other machines prepare; here a batch is only received, which takes CPU time per sample."""

    def change(scenario: Scenario) -> Scenario:
        receive = Service(seconds_per_sample)
        return replace(scenario, workload=replace(scenario.workload, preprocess=receive, fetch=ZERO, collate=ZERO))

    return change


#: In the order in which they cost. Ranges without a source are ours, wide on purpose; a measurement replaces them.
REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "more-workers",
        "as many workers as do best on the same cores",
        "measured",
        "this job's own numbers",
        "memory",
        (),
        more="workers",
    ),
    Remedy(
        "more-prefetch",
        "twice the batches out per worker",
        "measured",
        "this job's own numbers",
        "memory",
        (_prefetch_more,),
    ),
    Remedy(
        "out-of-order",
        "batches in the order in which they are ready",
        "measured",
        "this job's own numbers",
        "the order of samples is a matter of timing",
        (_loader(ordered=False),),
    ),
    Remedy(
        "more-cores",
        "the fewest cores that meet the target",
        "measured",
        "this job's own numbers",
        "cores",
        (),
        more="cores",
    ),
    Remedy(
        "larger-batch",
        "twice the samples per batch",
        "assumed",
        "step and per-batch times grow in proportion, the launch does not",
        "GPU memory; the training's own recipe",
        (_batch_twice,),
    ),
    Remedy(
        "cache-in-ram",
        "every sample from memory after the first epoch",
        "measured",
        "fetching takes no time",
        "RAM for the whole data set",
        (_no_fetch,),
    ),
    Remedy(
        "faster-decoder",
        "another library for the same decoding",
        "assumed",
        "preparation x 0.6 to 0.85",
        "a dependency",
        (_workload(preprocess=0.85), _workload(preprocess=0.6)),
    ),
    Remedy(
        "raw-format",
        "decoded samples on disk (npy) instead of JPEG",
        "recorded",
        "CPU per sample x 0.64, bytes x 5.4 (calibration/formats.csv, one machine; fetch x 1 to 5.4)",
        "5.4 times the storage",
        (_workload(preprocess=0.64, fetch=5.4), _workload(preprocess=0.64)),
    ),
    Remedy(
        "offline",
        "prepare once and store, read and collate only",
        "assumed",
        "preparation x 0.05 to 0.2",
        "storage for the prepared samples, one-off CPU hours, no random augmentation",
        (_workload(preprocess=0.2), _workload(preprocess=0.05)),
    ),
    Remedy(
        "threads",
        "threads instead of processes",
        "assumed",
        "the interpreter's lock is held for 0 to 30 % of the work",
        "code that releases the lock",
        (_threads(0.3), _threads(0.0)),
    ),
    Remedy(
        "gpu-decode",
        "decode on the GPU",
        "assumed",
        "80 to 100 % of the decoding leaves the CPU, 0.05 to 0.3 ms of GPU time per sample",
        "GPU time and memory",
        (_decode(0.2, 0.3e-3), _decode(0.0, 0.05e-3)),
    ),
    Remedy(
        "gpu-transforms",
        "decode and transform on the GPU",
        "assumed",
        "5 to 20 % of the preparation stays, 0.1 to 0.5 ms of GPU time per sample",
        "GPU time and memory",
        (_on_device(0.2, 0.5e-3), _on_device(0.05, 0.1e-3)),
    ),
    Remedy(
        "mixed-precision",
        "a faster step",
        "assumed",
        "step x 0.4 to 0.7",
        "more cores: the GPU asks for more samples",
        (_step(0.4), _step(0.7)),
    ),
    Remedy(
        "remote-workers",
        "other machines prepare, over the network",
        "assumed",
        "receiving takes 0.05 to 0.3 ms of CPU per sample",
        "the other machines and the network",
        (_remote(0.3e-3), _remote(0.05e-3)),
    ),
)

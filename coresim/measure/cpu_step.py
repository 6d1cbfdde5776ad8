"""The training step on the CPU, beside the accelerator's: what the job would do without a GPU."""

from __future__ import annotations

from collections.abc import Callable

from coresim.errors import InputError
from coresim.measure.accelerator import AcceleratorConfig, AcceleratorResult
from coresim.measure.models import NETS
from coresim.measure.step_time import StepJob, StepRequest
from coresim.model.measurement import Measurement

NAME = "accelerator.cpu_step"
#: Samples in the step that is timed of a built-in network: a large batch takes a CPU minutes.
BATCH = 4
SECONDS = 2.0


def measure_cpu_step(
    request: StepRequest, job: StepJob, measure: Callable[[AcceleratorConfig], AcceleratorResult]
) -> list[Measurement]:
    """Measure ``accelerator.cpu_step`` (s/step) with all cores that this process may use.

    A built-in network is timed with few samples and taken to need time in proportion, which is near the truth where a
    sample alone keeps all cores busy; the user's own step is timed with its own batch.

    Args:
        request: the net or the step.
        job: the batch, and the dataset whose batches the user's step takes.
        measure: `coresim.measure.accelerator.measure_accelerator`.

    Raises:
        InputError: the net cannot be measured.
        MissingPartError: torch is not installed.
        CoresimError: a process died or hangs.
    """
    own = request.step is not None
    if not own and request.net is None:
        raise InputError(f"--cpu-step: {request.model} cannot be measured; use one of {', '.join(NETS)}, or --step")
    size = job.batch_size if own else min(BATCH, job.batch_size)
    config = AcceleratorConfig(
        device="cpu",
        model=request.net or NETS[0],
        batch_size=size,
        step=request.step,
        batch=job.batch,
        processes=1,
        seconds=SECONDS,
        busy=(),
        copies=False,
    )
    found = measure(config)["accelerator.step"]
    factor = job.batch_size / size
    values = tuple(tuple(seconds * factor for seconds in process) for process in found.values)
    scaled = "" if factor == 1 else f"; of {size} samples, in proportion to {job.batch_size}"
    return [Measurement(NAME, found.unit, values, f"the step on the CPU, all cores{scaled}; {found.how}")]

"""Find the step time of a campaign: measured on this host's device, recorded elsewhere, or given.

The first that applies: the time that the user gives; the user's own step, measured; a record of the GPU that the
user names; a built-in network, measured, where there is a CUDA device (or on the CPU, where that is asked for);
a record of the default GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from coresim.device.models import NETS
from coresim.errors import InputError, MissingPartError
from coresim.machines.catalogue import DEFAULT_GPU, DEFAULT_MODEL, StepRow, find_step, precision_family, recorded_source
from coresim.measure.accelerator import AcceleratorConfig, AcceleratorResult
from coresim.measure.parts import optional_parts
from coresim.model.host import OptionalPart
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource
from coresim.model.profile_scenario import relative_error
from coresim.model.warning import HostWarning
from coresim.units import format_duration

#: Seconds per quantity and process with the default budget: three processes then take about 90 s.
SECONDS = 5.0
#: Samples of a built-in network's step that is timed on the CPU, where a large batch takes minutes. Of any step for
#: ``--cpu-step``: seconds, and repeats, all in one process, because each more would import the user's module again.
CPU_BATCH, CPU_SECONDS, CPU_REPEATS = 4, 2.0, 3
#: Relative standard uncertainty of that: 16 to 32 samples took 1.1 to 1.2 times as long (ResNets and ViT, one thread).
PROPORTION = 0.1
#: If a step of the whole batch takes the CPU at most this long, s, it is timed itself.
CPU_STEP_S = 0.3
#: What times a step: `coresim.measure.accelerator.measure_accelerator`, or `coresim.measure.server.Server.time_step`.
Timer = Callable[[AcceleratorConfig], AcceleratorResult]
_TORCH_PRECISIONS = {"mixed": "bf16", "fp32": "fp32", "tf32": "fp32"}


@dataclass(frozen=True)
class StepRequest:
    """What the user says about the training step; None: nothing.

    Attributes:
        step: ``package.module:name`` of ``train_step(batch)`` or of a factory of one.
        step_time: seconds per step.
        gpu: the GPU whose record is taken.
        model: the net: of the record, or one of `NETS` to measure.
        device: ``cuda``, ``cuda:N`` or ``cpu``: where to measure.
        dataset: the user's own, as `coresim.workloads.named.WorkloadSpec` takes it; None: a built-in workload.
    """

    step: str | None = None
    step_time: float | None = None
    gpu: str | None = None
    model: str | None = None
    precision: str | None = None
    device: str | None = None
    dataset: str | None = None

    def __post_init__(self) -> None:
        """InputError: two ways to know the step time are asked for, it is not positive, or no record has the name."""
        given = {"--step-time": self.step_time, "--step": self.step, "--gpu": self.gpu}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise InputError(f"{' and '.join(named)}: each gives the step time; leave all but one out")
        if self.step_time is not None and not self.step_time > 0:
            raise InputError(f"--step-time = {self.step_time:g} s: a step must take time")
        if self.device is not None and named not in ([], ["--step"]):
            raise InputError(f"--device says where to measure, and {named[0]} gives the step time; leave one out")
        # A name without a record is refused before anything is built or measured.
        if self.gpu is not None or (self.model is not None and self.net is None and not named and self.device is None):
            find_step(self.gpu or DEFAULT_GPU, self.model or DEFAULT_MODEL, precision=self.precision)

    @property
    def net(self) -> str | None:
        """The one of `NETS` that ``model`` names (the first where it is None), or None."""
        name = NETS[0] if self.model is None else re.sub(r"v1\.5|[^a-z0-9]", "", self.model.lower())
        return next((net for net in NETS if net.replace("_", "") == name), None)

    @property
    def trained(self) -> tuple[str, str]:
        """The net to measure and torch's name of its precision.

        By default it is mixed, as people train today, but on a CPU, where few have that, it is fp32.

        Raises:
            InputError: one that cannot be measured.
        """
        if self.net is None:
            raise InputError(f"--model {self.model}: cannot be measured; use one of {', '.join(NETS)}, or --step")
        if self.precision is None:
            return self.net, "fp32" if self.device == "cpu" else "bf16"
        family = precision_family(self.precision)
        if family not in _TORCH_PRECISIONS:
            raise InputError(f"--precision {self.precision}: cannot be measured; use bf16 or fp32, or your own --step")
        return self.net, _TORCH_PRECISIONS[family]


@dataclass(frozen=True)
class StepTime:
    """A step time: its source, what was measured for it, and reasons to trust it less."""

    source: AcceleratorSource
    measurements: tuple[Measurement, ...] = ()
    warnings: tuple[HostWarning, ...] = ()


def find_step_time(request: StepRequest, job: AcceleratorConfig, timer: Timer) -> StepTime:
    """The step time of the first source that applies; see the module's text.

    ``job``: how ``timer`` measures a step, if it does; the device, a net and its precision are what the request says.

    Raises:
        InputError: an unknown name, or the user's step fails.
        MissingPartError: the user's step, or a device that the user names, cannot be measured here.
    """
    if request.step_time is not None:
        provenance = f"given: {format_duration(request.step_time)} per step of {job.batch_size}, taken as exact"
        return StepTime(
            AcceleratorSource(kind="given", provenance=provenance, uncertainty=0.0, step_time_s=request.step_time)
        )
    if request.step is not None or request.device is not None:
        try:
            return _measured(request, job, timer)
        except MissingPartError as error:
            remedy = "" if request.device == "cpu" else ", or time the step on the CPU with --device cpu"
            raise MissingPartError(f"{error}{remedy}") from None
    if request.gpu is not None or not has_cuda(optional_parts()):
        return _recorded(request, job.batch_size)
    if request.net is None:
        return _recorded(request, job.batch_size, f"only {', '.join(NETS)} can be, without --step")
    try:
        return _measured(request, job, timer)
    except MissingPartError as error:
        return _recorded(request, job.batch_size, str(error))


def has_cuda(parts: Sequence[OptionalPart]) -> bool:
    """Whether torch and a CUDA device are here."""
    return {part.name for part in parts if part.present} >= {"torch", "CUDA device"}


def measure_cpu_step(
    request: StepRequest, job: AcceleratorConfig, timer: Timer
) -> tuple[Measurement, list[HostWarning]]:
    """Measure ``accelerator.cpu_step`` (s/step): what the job would do without a GPU, on all cores of this process.

    The user's own step is timed with its own batch, a net as `_timed` says. Reasons to trust it less come along.

    Raises:
        InputError: the net cannot be measured.
        MissingPartError, CoresimError: as ``timer``.
    """
    if request.step is None and request.net is None:
        raise InputError(f"--cpu-step: {request.model} cannot be measured; use one of {', '.join(NETS)}, or --step")
    config = replace(
        job, device="cpu", model=request.net or NETS[0], processes=1, repeats=CPU_REPEATS, seconds=CPU_SECONDS, busy=()
    )
    result = _timed(config, timer)
    if (device := result.provenance["device"]) != "cpu":
        raise InputError(f"--cpu-step: {request.step} runs on {device}, as its own attribute says; leave the flag out")
    step = result["accelerator.step"]
    step = replace(step, name="accelerator.cpu_step", how=f"the step on the CPU, all cores; {step.how}")
    return step, list(result.busy_warnings())


def _timed(config: AcceleratorConfig, timer: Timer) -> AcceleratorResult:
    """Time a step; of a net on the CPU only a few samples, which it is taken to need time in proportion to.

    That is near the truth where a sample alone keeps all cores busy, and a batch of 256 may take a CPU minutes. Where
    the whole batch would take `CPU_STEP_S` at the most, that is timed instead.
    """
    size = config.batch_size if config.step or config.device != "cpu" else min(CPU_BATCH, config.batch_size)
    found, factor = timer(replace(config, batch_size=size)), config.batch_size / size
    if factor == 1:
        return found
    if factor * found["accelerator.step"].mean <= CPU_STEP_S:
        return timer(config)
    proportion = f"of {size} samples, in proportion to {config.batch_size}"
    measurements = tuple(replace(m.scaled(factor), how=f"{proportion}; {m.how}") for m in found.measurements)
    step = f"{found.provenance['step']} {proportion}"
    return replace(found, measurements=measurements, provenance={**found.provenance, "step": step})


def _recorded(request: StepRequest, batch_size: int, instead: str | None = None) -> StepTime:
    """A record of the catalogue; ``instead`` says why the device that is here was not measured."""
    gpu, model = request.gpu or DEFAULT_GPU, request.model or DEFAULT_MODEL
    found = find_step(gpu, model, batch_size, request.precision)
    # Nobody has said which network is trained on the user's own data set, nor on which GPU.
    source = recorded_source(found)
    if request.dataset is not None and request.gpu is None and request.model is None:
        provenance = f"not known; in its place the catalogue's {found.provenance}"
        source = replace(source, kind="unknown", provenance=provenance)
    return StepTime(source, (), tuple(_stand_in_warnings(request, found.row, instead)))


def _stand_in_warnings(request: StepRequest, row: StepRow, instead: str | None) -> Iterator[HostWarning]:
    remedy = "time your own with --step, or give --step-time; --gpu and --model choose another record"
    if instead:
        stands_in = f"a record of {row.gpu} stands in: {remedy}"
        yield HostWarning("the CUDA device here was not measured", instead, stands_in)
    if request.dataset is not None and request.gpu is not None and request.model is None:
        yield HostWarning("a recorded step stands in for the one of your dataset", f"{row.model} on {row.gpu}", remedy)


def _measured(request: StepRequest, job: AcceleratorConfig, timer: Timer) -> StepTime:
    config = replace(job, device=request.device or "cuda")
    if request.step is None:  # a step of the user's own has its own precision
        model, precision = request.trained
        config = replace(config, model=model, precision=precision)
    result = _timed(config, timer)
    step, facts = result["accelerator.step"], result.provenance
    error = relative_error(step.values)
    error = math.hypot(error, PROPORTION) if "in proportion" in facts["step"] else error
    provenance = (
        f"measured: {facts['step']} on {facts['device']}, {facts['precision']}, batch {job.batch_size}, torch "
        f"{facts['torch']}: {format_duration(step.mean)} per step, standard error {error:.1%}"
    )
    source = AcceleratorSource(
        kind="measured",
        provenance=provenance,
        uncertainty=error,
        synchronises=result.synchronises,
        name=facts["device"],
    )
    return StepTime(source, result.measurements, tuple(_warnings(request, result)))


def _warnings(request: StepRequest, result: AcceleratorResult) -> Iterator[HostWarning]:
    if not result.settled:
        remedy = "give a larger --budget; other programs on the GPU, or heat, do this too"
        yield HostWarning("the training step", "still changing after its warm-up", remedy)
    if request.device == "cpu":
        yield from result.busy_warnings()
    if request.dataset is not None and request.step is None:
        value, remedy = result.provenance["step"], "give your own with --step package.module:name"
        yield HostWarning("a built-in step was timed with your dataset", value, remedy)

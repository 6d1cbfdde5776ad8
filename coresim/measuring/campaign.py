"""All measurements of one job on this host, in order, within a time: a `Profile`.

Wall seconds of each part with the default budget of 40 s; they scale with it. Importing torch and starting
processes come on top where a part's own text says so. Nothing runs beside anything else.

========== ====== ==========================================================
part        s     what
========== ====== ==========================================================
look        --    the workload makes its data; a few samples are prepared
step        0     `coresim.measuring.step_time`; where a CUDA device is timed, 90 s on top of the 40 s
prepare     12    `coresim.measuring.preprocess`
worker       1    `coresim.measuring.worker`
scaling      7    `coresim.measuring.scaling`
bandwidth    3    `coresim.measuring.bandwidth`
storage      3    `coresim.measuring.storage`, where the workload names files
transport   rest  `coresim.measuring.transport`: 2 to 8 s
sending      4    `coresim.measuring.sending`, where torch is installed
========== ====== ==========================================================
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from coresim.errors import InputError
from coresim.measuring import protocol
from coresim.measuring.accelerator import AcceleratorConfig, AcceleratorResult, measure_accelerator
from coresim.measuring.assemble import assemble, provenance
from coresim.measuring.bandwidth import measure_bandwidth
from coresim.measuring.cpu_step import measure_cpu_step
from coresim.measuring.host import read_host
from coresim.measuring.parts import optional_parts
from coresim.measuring.preprocess import WorkloadFacts, look, measure_preparation
from coresim.measuring.scaling import measure_scaling
from coresim.measuring.sending import measure_sending
from coresim.measuring.step_time import Job, StepRequest, find_step_time
from coresim.measuring.storage import measure_storage
from coresim.measuring.transport import measure_transport
from coresim.measuring.worker import measure_worker
from coresim.model.caution import Caution
from coresim.model.host import HostFacts, Part
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource, Profile
from coresim.workloads.base import WorkloadSpec
from coresim.workloads.registry import DEFAULT, target_of

BUDGET = 40.0
QUICK_BUDGET = 8.0
LEAST_BUDGET = 2.0
SHARES = {"prepare": 0.3, "worker": 0.025, "scaling": 0.175, "bandwidth": 0.075, "storage": 0.075, "sending": 0.1}
TRANSPORT_SHARES = (0.05, 0.2)
LABELS = {
    "look": "looking at the workload",
    "step": "finding the step time",
    "prepare": "preparing samples",
    "worker": "looking at a worker",
    "scaling": "preparing samples on several cores",
    "bandwidth": "memory bandwidth",
    "storage": "reading files",
    "transport": "handing batches over",
    "sending": "sending batches",
}
NO_FILES = Caution(
    "storage was not measured",
    "the dataset names no files",
    "samples were timed as they came, mostly from the page cache; name the files in a Workload's files()",
)
#: Where each part begins and ends, as fractions of all that is done.
SPANS = {
    "look": (0.0, 0.1),
    "step": (0.1, 0.15),
    "prepare": (0.15, 0.5),
    "worker": (0.5, 0.53),
    "scaling": (0.53, 0.7),
    "bandwidth": (0.7, 0.8),
    "storage": (0.8, 0.88),
    "transport": (0.88, 0.95),
    "sending": (0.95, 1.0),
}
PROCESSES, QUICK_PROCESSES = 3, 2

Progress = Callable[[str, float], None] | None


@dataclass(frozen=True, kw_only=True)
class Request(StepRequest):
    """What to measure: the fields of `StepRequest` say how the step time is known, and these the rest.

    Attributes:
        workload: a built-in workload, by its name in `coresim.workloads.registry`; not used with ``dataset``.
        dataset: ``package.module:name`` of a function that gives a dataset, or of a `Workload` class.
        batch_size: samples per batch; the workload's own where None.
        collate: ``package.module:name`` of the collate function, or None.
        cpu_step: time the step on the CPU too.
        quick: fewer processes and `QUICK_BUDGET`: for a first look, and for trying things out.
        budget: wall seconds of all parts but the accelerator; None for the default.
    """

    workload: str = DEFAULT
    dataset: str | None = None
    batch_size: int | None = None
    collate: str | None = None
    cpu_step: bool = False
    quick: bool = False
    budget: float | None = None

    def __post_init__(self) -> None:
        """InputError for an unknown workload, a batch size below 1, or a budget below `LEAST_BUDGET`."""
        super().__post_init__()
        if self.dataset is None:
            target_of(self.workload)
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"batch size = {self.batch_size}: at least 1 is needed")
        if self.budget is not None and self.budget < LEAST_BUDGET:
            raise InputError(f"budget = {self.budget:g} s: at least {LEAST_BUDGET:g} s are needed to measure anything")

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return self.budget or (QUICK_BUDGET if self.quick else BUDGET)

    @property
    def processes(self) -> int:
        """Fresh processes, the independent repeats."""
        return QUICK_PROCESSES if self.quick else PROCESSES

    def spec(self, folder: str) -> WorkloadSpec:
        """How fresh processes build the workload, with ``folder`` for the data that it makes."""
        return WorkloadSpec(self.dataset or target_of(self.workload), folder, self.batch_size, self.collate)


@dataclass(frozen=True)
class Tools:
    """The functions that measure; a test passes others."""

    read_host: Callable[[], HostFacts] = read_host
    parts: Callable[[], Sequence[Part]] = optional_parts
    check_quiet: Callable[[], Sequence[Caution]] = protocol.check_quiet
    look: Callable[[WorkloadSpec], WorkloadFacts] = look
    prepare: Callable[..., list[Measurement]] = measure_preparation
    worker: Callable[..., list[Measurement]] = measure_worker
    scaling: Callable[..., list[Measurement]] = measure_scaling
    bandwidth: Callable[..., list[Measurement]] = measure_bandwidth
    storage: Callable[..., list[Measurement]] = measure_storage
    transport: Callable[..., list[Measurement]] = measure_transport
    sending: Callable[..., list[Measurement]] = measure_sending
    accelerator: Callable[[AcceleratorConfig], AcceleratorResult] = measure_accelerator


def utc_now() -> str:
    """The time as ISO 8601, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_campaign(
    request: Request,
    *,
    progress: Progress = None,
    command: str = "",
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], str] = utc_now,
    tools: Tools | None = None,
) -> Profile:
    """Measure everything that the request needs; the folder for the workload's data is gone afterwards.

    Args:
        request: what to measure.
        progress: told the part that is going on, and the fraction of all that is done.
        command: the command line, for the profile's provenance.
        clock: wall seconds, for the budget.
        now: the time of day as text, for the provenance.
        tools: the functions that measure.

    Raises:
        InputError: the dataset, the step or a name in the request is wrong.
        MissingPartError: torch or a CUDA device is needed and not here.
        CoresimError: a measuring process died or hangs.
    """
    tools = tools or Tools()
    began = now()
    with tempfile.TemporaryDirectory(prefix="coresim-") as folder:
        return _Campaign(request, request.spec(folder), tools, clock, progress).run(command, began)


class _Campaign:
    """One run; what was found so far."""

    def __init__(
        self, request: Request, spec: WorkloadSpec, tools: Tools, clock: Callable[[], float], progress: Progress
    ) -> None:
        self._request, self._spec, self._tools, self._clock, self._progress = request, spec, tools, clock, progress
        self._found: list[Measurement] = []
        self._cautions: list[Caution] = []

    def run(self, command: str, began: str) -> Profile:
        """The order matters: what may be wrong with the request is found before minutes of measuring."""
        started = self._clock()
        host = self._tools.read_host()
        self._cautions += self._tools.check_quiet()
        self._cautions += host.warnings
        facts = self._part("look", self._tools.look, self._spec)
        before_step = self._clock()
        source = self._step(facts)
        started += self._clock() - before_step
        self._prepare(facts)
        self._hand_over(facts, started)
        protocol.tell(self._progress, "done", 1.0)
        return assemble(facts, host, source, self._found, self._cautions, provenance(command, began, host))

    def _part(self, name: str, measure: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._tell(name, name, 0.0)
        return measure(*args, **kwargs)

    def _tell(self, name: str, _: str, fraction: float) -> None:
        """A part's own words change too often for a bar; the part's name is told."""
        begin, end = SPANS[name]
        protocol.tell(self._progress, LABELS[name], begin + (end - begin) * fraction)

    def _measure(self, name: str, measure: Callable[..., list[Measurement]], *args: Any, **options: Any) -> None:
        listen = partial(self._tell, name)
        found = self._part(name, measure, *args, progress=listen, cautions=self._cautions, **options)
        self._found += found

    def _step(self, facts: WorkloadFacts) -> AcceleratorSource:
        request, tools = self._request, self._tools
        job = Job(
            batch_size=facts.batch_size,
            dataset=self._spec if request.dataset is not None else None,
            processes=request.processes,
            scale=request.seconds / BUDGET,
        )
        found = self._part("step", find_step_time, request, job, tools.parts, tools.accelerator)
        self._found += found.measurements
        self._cautions += found.cautions
        if request.cpu_step:
            self._found += self._part("step", measure_cpu_step, request, job, tools.accelerator)
        source: AcceleratorSource = found.source
        return source

    def _prepare(self, facts: WorkloadFacts) -> None:
        tools, seconds = self._tools, {name: share * self._request.seconds for name, share in SHARES.items()}
        processes = self._request.processes
        self._measure("prepare", tools.prepare, self._spec, processes=processes, budget_s=seconds["prepare"])
        self._measure("worker", tools.worker, self._spec, budget_s=seconds["worker"])
        sample = sum(m.mean for m in self._found if m.name.startswith("prepare.") and m.unit == "s/sample")
        self._measure("scaling", tools.scaling, self._spec, sample_s=sample, budget_s=seconds["scaling"])
        self._measure("bandwidth", tools.bandwidth, budget_s=seconds["bandwidth"])
        if facts.files:
            self._measure("storage", tools.storage, facts.files, budget_s=seconds["storage"])
        else:
            self._cautions.append(NO_FILES)

    def _hand_over(self, facts: WorkloadFacts, started: float) -> None:
        least, most = (share * self._request.seconds for share in TRANSPORT_SHARES)
        left = min(most, max(least, self._request.seconds - (self._clock() - started)))
        size, arrays = facts.bytes_per_batch, facts.arrays_per_batch
        self._measure("transport", self._tools.transport, size, arrays, budget_s=left)
        if any(part.name == "torch" and part.present for part in self._tools.parts()):
            seconds = SHARES["sending"] * self._request.seconds
            self._measure("sending", self._tools.sending, self._spec, budget_s=seconds)

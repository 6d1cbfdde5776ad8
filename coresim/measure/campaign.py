"""Make all measurements of one job on this host, in order and within a budget: a `Profile`.

The data set is made and built in the one process of `coresim.measure.server`, where the job's own loader then runs.
`SHARES` of the budget go to each part; starting that process, building the data set, importing torch and timing a step
on a CUDA device (90 s) come on top. Nothing runs beside anything else.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coresim import __version__
from coresim.errors import InputError
from coresim.files import utc_now
from coresim.measure.accelerator import SLOW_S, AcceleratorConfig, measure_accelerator
from coresim.measure.bandwidth import measure_bandwidth
from coresim.measure.host import read_host
from coresim.measure.neighbours import measure_droop
from coresim.measure.parts import optional_parts, version_of
from coresim.measure.processes import Child, Link
from coresim.measure.protocol import Context
from coresim.measure.rig import DatasetFacts
from coresim.measure.server import BUILDING, IMPORTING, Ask, Calibrated, Server
from coresim.measure.speed_evidence import speed_table
from coresim.measure.stand_in import StandInSubject
from coresim.measure.step_time import SECONDS, StepRequest, Timer, find_step_time, has_cuda, measure_cpu_step
from coresim.measure.storage import measure_storage
from coresim.measure.system_root import check_proc
from coresim.model.host import HostFacts
from coresim.model.measurement import Measurement
from coresim.model.option import STAGED_LOADER
from coresim.model.profile import AcceleratorSource, Profile, Provenance
from coresim.model.warning import HostWarning
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import DEFAULT, target_of

BUDGET = 28.0
QUICK_BUDGET = 6.0
LEAST_BUDGET = 2.0
SHARES = {"loader": 0.7, "pressure": 0.07, "spin": 0.03, "bandwidth": 0.1, "storage": 0.1}
#: What each part is called, and where it begins and ends, as fractions of all that is done.
PARTS = {
    "loader": ("running the loader", 0.0, 0.79),
    "spin": ("spinning on all cores", 0.79, 0.82),
    "bandwidth": ("memory bandwidth", 0.82, 0.92),
    "storage": ("reading files", 0.92, 1.0),
}
NO_FILES = HostWarning(
    "storage was not measured",
    "the dataset names no files",
    "samples were timed as they came, mostly from the page cache; name the files in a Workload's files()",
)
STAGES_ONLY = HostWarning(
    "only stages in threads were measured",
    "what sending and receiving cost worker processes is not known",
    "measure without --staged for options 1 and 2",
)
NO_TORCH = HostWarning(
    "no DataLoader was measured", f"{StandInSubject.loader}, ran instead", "install torch and measure again"
)
#: Fresh processes that time a step, the independent repeats.
PROCESSES = 3
SILENCE = 180.0

#: A function that is called with the current part and the fraction of all that is done.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class Request(StepRequest):
    """What to measure: the fields of `StepRequest` say how the step time is known, and these the rest.

    Attributes:
        workload: a built-in workload, by its name in `coresim.workloads.registry`; not used with ``dataset``.
        batch_size: samples per batch; the workload's own where None.
        collate: ``package.module:name`` of the collate function, or None.
        worker_init: ``package.module:name`` of what each worker calls when it starts, or None.
        quick: `QUICK_BUDGET`: for a first answer, and for trying things out.
        staged: run the steps of a sample as stages in threads (option 3) in the place of the loader.
        budget: wall seconds of all parts but the accelerator and sending; None for the default.
        build_timeout: the longest that building the data set may take, s; None: as long as it takes.
    """

    workload: str = DEFAULT
    batch_size: int | None = None
    collate: str | None = None
    worker_init: str | None = None
    cpu_step: bool = False
    staged: bool = False
    quick: bool = False
    budget: float | None = None
    build_timeout: float | None = None

    def __post_init__(self) -> None:
        """InputError for an unknown workload, a batch size below 1, or a budget below `LEAST_BUDGET`."""
        super().__post_init__()
        if self.dataset is None:
            target_of(self.workload)
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"batch size = {self.batch_size}: at least 1 is needed")
        if self.staged and self.worker_init is not None:
            raise InputError("--worker-init and --staged: stages are threads, and no worker starts; leave one out")
        if self.budget is not None and self.budget < LEAST_BUDGET:
            raise InputError(f"budget = {self.budget:g} s: at least {LEAST_BUDGET:g} s are needed to measure anything")

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return self.budget or (QUICK_BUDGET if self.quick else BUDGET)

    def spec(self, folder: str) -> WorkloadSpec:
        """How fresh processes build the workload, with ``folder`` for the data that it makes."""
        target = self.dataset or target_of(self.workload)
        return WorkloadSpec(target, folder, self.batch_size, self.collate, self.worker_init)


def run_campaign(
    request: Request,
    *,
    progress: Progress = lambda what, done: None,
    command: str = "",
) -> Profile:
    """Measure everything that the request needs; the folder for the workload's data is gone afterwards.

    ``progress`` is called with the current part and the fraction of all that is done; ``command`` is for the profile's
    provenance.

    Raises:
        InputError: the dataset, the step or a name in the request is wrong.
        MissingPartError: torch or a CUDA device is needed and not here, or /proc cannot be read.
        CoresimError: a measuring process died or hangs.
    """
    check_proc()
    began = utc_now()
    with tempfile.TemporaryDirectory(prefix="coresim-") as folder:
        return _Campaign(request, request.spec(folder), progress).run(command, began)


def make_data(spec: WorkloadSpec) -> None:
    """Let a built-in workload write its data, in a fresh process; a user's data set has its own."""
    Path(spec.folder).mkdir(parents=True, exist_ok=True)
    with Child(_make, spec, doing=f"making the data of {spec.target}") as child:
        child.receive(SILENCE)


def _make(_: Link, spec: WorkloadSpec) -> None:
    spec.make()


class _Campaign:
    def __init__(self, request: Request, spec: WorkloadSpec, progress: Progress) -> None:
        self._request, self._spec, self._progress = request, spec, progress
        self._done = 0.0
        self._found: list[Measurement] = []
        self._warnings: list[HostWarning] = []

    def run(self, command: str, began: str) -> Profile:
        """Find errors in the request first, except in a step whose module takes long to import."""
        request = self._request
        host = read_host()
        self._warnings += host.warnings
        self._say(IMPORTING if self._spec.is_own else BUILDING)
        if request.dataset is None:
            make_data(self._spec)
        with Server(self._spec, build_timeout=request.build_timeout, tell=self._say) as server:
            facts = replace(server.facts, loader=STAGED_LOADER) if request.staged else server.facts
            if request.staged and facts.samples == sys.maxsize:
                raise InputError(f"{facts.name}: a stream, but stages need a data set with __getitem__ and __len__")
            # A module that takes long to import may build the data set, which is built once.
            later = self._spec.is_own and request.step is not None and server.import_s > SLOW_S
            source = None if later else self._step(facts, server, measure_accelerator)
            loader_s, pressure_s = SHARES["loader"] * request.seconds, SHARES["pressure"] * request.seconds
            pins = self._pins(source)
            device = (request.device or "cuda") if pins else ""
            ask = Ask(request.staged, loader_s, pin_memory=pins, device=device, pressure_s=pressure_s)
            self._tell("loader", 0.0)
            loader = server.calibrate(ask, progress=partial(self._tell, "loader"))
            source = source or self._step(facts, server, server.time_step)
        self._found += loader.measurements
        self._warnings += [*loader.warnings, *([NO_TORCH] if facts.loader == StandInSubject.loader else [])]
        self._warnings += [STAGES_ONLY] if request.staged else []
        # What says why a cost is what it is, and carries it beyond what was run.
        if not host.hypervisor:  # what other guests do changes the clock too
            self._measure("spin", measure_droop)
        self._measure("bandwidth", measure_bandwidth)
        if facts.files:
            self._measure("storage", measure_storage, facts.files)
        else:
            self._warnings.append(NO_FILES)
        self._progress("done", 1.0)
        return assemble(facts, loader, host, source, self._found, self._warnings, command, began)

    def _say(self, what: str) -> None:
        self._progress(what, self._done)

    def _tell(self, name: str, done: float) -> None:
        label, begin, end = PARTS[name]
        self._done = begin + (end - begin) * done
        self._progress(label, self._done)

    def _pins(self, source: AcceleratorSource | None) -> bool:
        """Whether the loader is to pin: for the device that a step was timed on, that is named, or that is here."""
        if self._request.staged:
            return False
        if source is not None and source.kind == "measured":
            return any(measurement.name == "copy.pinned" for measurement in self._found)
        named = self._request.device
        return has_cuda(optional_parts()) if named is None else not named.startswith("cpu")

    def _step(self, facts: DatasetFacts, server: Server, timer: Timer) -> AcceleratorSource:
        """The step; the user's own takes a batch of the data set, which the one process that has it gives."""
        request = self._request
        self._say("finding the step time")
        job = AcceleratorConfig(
            batch_size=facts.batch_size,
            step=request.step,
            processes=PROCESSES,
            seconds=SECONDS * (request.seconds / BUDGET),
        )
        if request.step is not None and request.dataset is not None:
            job = replace(job, batch=Path(self._spec.folder, "batch.pt"))
            server.ask(job.batch)
        found = find_step_time(request, job, timer)
        self._found += found.measurements
        self._warnings += found.warnings
        if request.cpu_step:
            step, warnings = measure_cpu_step(request, job, timer)
            self._found.append(step)
            self._warnings += warnings
        return found.source

    def _measure(self, name: str, measure: Callable[..., list[Measurement]], *args: Any) -> None:
        self._tell(name, 0.0)
        context = Context(SHARES[name] * self._request.seconds, partial(self._tell, name), self._warnings)
        self._found += measure(*args, context)


def assemble(
    facts: DatasetFacts,
    loader: Calibrated,
    host: HostFacts,
    source: AcceleratorSource,
    found: Sequence[Measurement],
    warnings: Sequence[HostWarning],
    command: str = "",
    began: str = "",
) -> Profile:
    """The profile of one campaign: what was found, with the fit of the speed as plain numbers.

    ``command`` and ``began`` go into its provenance, with the versions of what may change the numbers.
    """
    # A sample is read from its file and written; collating reads it and writes it once more.
    ran = loader.batch_size or facts.batch_size
    moved = (facts.bytes_per_sample or 0.0) + 3.0 * loader.batch_bytes / ran
    speed = speed_table(found, host, moved)
    return Profile(
        workload=facts.name,
        loader=facts.loader,
        batch_size=facts.batch_size,
        samples=None if facts.samples == sys.maxsize else facts.samples,
        bytes_per_sample=facts.bytes_per_sample,
        bytes_per_batch=loader.batch_bytes * facts.batch_size // ran,
        arrays_per_batch=loader.batch_arrays,
        measured_batch=None if ran == facts.batch_size else ran,
        host=host,
        accelerator=source,
        provenance=Provenance(
            tool_version=__version__,
            command=command,
            time_utc=began,
            host_fingerprint=host.fingerprint,
            python_version=platform.python_version(),
            numpy_version=np.__version__,
            torch_version=version_of("torch"),
        ),
        speed=speed.values,
        speed_uncertainty=speed.uncertainties,
        siblings=speed.sibling,
        speed_provenance="; ".join(speed.provenance),
        warnings=tuple(warnings),
        settings=facts.settings,
        measurements=tuple(found),
    )

"""The one process of an answer in which the user's data set lives: built once, calibrated, and tried.

It is a fresh interpreter that forks the loader's workers, which the process that asks must never do: libraries may have
started threads there. `Server` is the other end, in the process that asks.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coresim.device.emulated import open_device
from coresim.device.models import load_torch, one_line
from coresim.errors import InputError, MissingPartError
from coresim.measure import costs
from coresim.measure.accelerator import TIMEOUT, AcceleratorConfig, AcceleratorResult, result_of, step_job
from coresim.measure.calibrate import BUDGET_S, calibrate
from coresim.measure.forked import run_forked
from coresim.measure.handover import of_small
from coresim.measure.machine_speed import OWN_WORK
from coresim.measure.neighbours import measure_pressure, measure_siblings, sibling_cpus
from coresim.measure.processes import START_TIMEOUT, Child, HangError, Link
from coresim.measure.protocol import Context, Progress
from coresim.measure.rig import DatasetFacts, Rig, loader_of
from coresim.measure.senders import SENDERS_SHARE, measure_senders
from coresim.measure.subject import PATIENCE, Subject
from coresim.measure.trust import agreeing, warnings_of
from coresim.model.measurement import Measurement
from coresim.model.warning import HostWarning
from coresim.workloads.named import WorkloadSpec

#: Samples that are prepared under pressure, again and again.
PRESSED = 4
#: Share of that time which the hardware threads of one core get, where there are some.
SIBLINGS = 1 / 3
#: Of a calibration's time, that of small batches.
SMALL_SHARE = 0.05
#: How often, and from when on, a wait for the process is reported, s.
TICK_S, QUIET_S = 1.0, 5.0
IMPORTING, BUILDING, RUNNING = "importing your module", "building the data set", "running the loader"
WAITING = "waiting for a batch"


class Calibrated(NamedTuple):
    """What a calibration found, see `coresim.measure.costs` and `coresim.measure.trust`.

    ``usual_sampler_s`` is `coresim.measure.costs.usual_sampler_times`; ``sampled`` is that of
    `coresim.measure.calibrate.Calibration`, for the trials that follow. ``batch_size``: samples of a batch that ran.
    """

    measurements: list[Measurement]
    warnings: list[HostWarning]
    usual_sampler_s: Mapping[int, float]
    sampled: float
    batch_bytes: int
    batch_arrays: int
    batch_size: int | None = None


@dataclass(frozen=True)
class Ask:
    """A request for one calibration; see `coresim.measure.calibrate.calibrate`.

    ``device``: the device for which the loader's own thread pins, if the measuring process has opened none itself.
    ``pressure_s``: wall seconds of preparing samples beside cores that stream memory; 0: not at all. ``seed``: which
    samples are drawn; with the same ones two profiles of a job are easier to compare.
    """

    threads: bool = False
    budget_s: float = BUDGET_S
    pin_memory: bool = False
    reads: bool = False
    device: str = ""
    pressure_s: float = 0.0
    seed: int = 0


class Server:
    """A fresh process with the data set of ``spec``; use it in a ``with`` block.

    The data set's files exist already. ``build_timeout``: the longest that building may take, s; None: no limit.
    ``tell`` is called with what is going on. ``more(rig, message)`` runs in the process and answers all other messages.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        *,
        build_timeout: float | None = None,
        tell: Callable[[str], None] = lambda what: None,
        more: Callable[[Rig, Any], Any] | None = None,
    ) -> None:
        self._tell, self._timeout = tell, build_timeout
        self._child = Child(_serve, spec, more, limited=False, doing=f"preparing samples of {spec.target}")
        self._spec = spec

    def __enter__(self) -> Server:
        began = time.monotonic()
        try:
            self._wait(IMPORTING if self._spec.is_own else BUILDING, began, self._timeout)
            self.import_s = time.monotonic() - began
            self._tell(BUILDING)
            self.facts: DatasetFacts = self._wait(BUILDING, began, self._timeout)[1]
        except BaseException:
            self._child.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._child.__exit__()

    def _wait(self, what: str, began: float, most: float | None) -> tuple[str, Any]:
        """The process's next message. A wait is reported as progress; too long a wait is an error."""
        while True:
            try:
                return self._child.receive(TICK_S)
            except HangError:
                seconds = time.monotonic() - began
            if seconds > QUIET_S:
                self._tell(f"{what}, {seconds:.0f} s")
            if most is not None and seconds > most:
                longer = ", or give it longer with --build-timeout" if what in (IMPORTING, BUILDING) else ""
                remedy = f"make it answer (a lock, a network read, a full disk?){longer}"
                raise InputError(f"{self._spec.target}: {what} took more than {most:g} s; {remedy}")

    def calibrate(self, ask: Ask, progress: Progress) -> Calibrated:
        """As `coresim.measure.calibrate.calibrate`; ``progress`` is called with the fraction done."""
        self._child.send(ask)
        while (message := self._receive(RUNNING))[0] == "running":
            progress(message[1])
        found: Calibrated = message[1]
        return found

    def time_step(self, config: AcceleratorConfig) -> AcceleratorResult:
        """As `measure_accelerator`, but in the process that has imported what the step's module may build.

        Call it after all calibrations: a process that has prepared samples forks workers that prepare faster.
        """
        repeats = config.processes * config.repeats
        self._child.send(replace(config, processes=1, repeats=repeats))
        return result_of(self._child, repeats * TIMEOUT)

    def ask(self, message: Any, doing: str = WAITING) -> Any:
        """Send the process a message and return its answer; ``doing``: what it does meanwhile.

        If the message is a path, it writes one collated batch there, as tensors if torch is installed, for a step that
        is measured alone.
        """
        self._child.send(message)
        return self._receive(doing)[1]

    def _receive(self, doing: str = WAITING) -> tuple[str, Any]:
        """The process's next message; it may be silent for as long as a batch may take."""
        return self._wait(doing, time.monotonic(), START_TIMEOUT + PATIENCE)


def _serve(link: Link, spec: WorkloadSpec, more: Callable[[Rig, Any], Any] | None) -> None:
    spec.load()
    link.send(("imported", None))
    threads = importlib.import_module("torch").get_num_threads() if importlib.util.find_spec("torch") else 0
    rig = Rig(spec)
    link.send(("built", rig.facts()))
    while True:
        message = link.recv()
        if isinstance(message, Ask):
            link.send(("calibrated", _pinning(link, rig, message)))
        elif isinstance(message, AcceleratorConfig):
            if threads:  # the loader was limited to one
                load_torch().set_num_threads(threads)
                threads = 0  # from here on the step's module may say how many
            link.send(("stepped", step_job(link, message)))
        elif isinstance(message, Path):
            # In a fork: a batch that this process prepared itself would make its later workers faster.
            run_forked([partial(_store, rig, message)], "the data set")
            link.send(("stored", None))
        elif more is not None:
            link.send(("answered", more(rig, message)))


def _pinning(link: Link, rig: Rig, ask: Ask) -> Calibrated:
    """The calibration around which the device is open that it pins for; nothing is pinned where it does not open."""
    if not ask.device:
        return _calibrated(link, rig, ask)
    try:
        device = open_device(ask.device)
        device.pin(load_torch().zeros(1))
    except MissingPartError:
        reason = f"torch sees no device {ask.device}"
    except RuntimeError as error:  # as if another program has taken it
        reason = one_line(error)
    else:
        with device.loading():
            return _calibrated(link, rig, ask)
    found = _calibrated(link, rig, replace(ask, pin_memory=False))
    found.warnings.append(HostWarning("no memory was pinned", reason, "cure that and measure again"))
    return found


def _calibrated(link: Link, rig: Rig, ask: Ask) -> Calibrated:
    subject, small = (rig.subject(threads=True), None) if ask.threads else rig.light_subjects()
    # Lighter batches have the same samples, so one of them shows the machine's speed in all calibrations and trials.
    usual = rig.subject(threads=False)
    subject.timed_sample = usual.timed_sample
    run = partial(calibrate, pin_memory=ask.pin_memory, reads=ask.reads, seed=ask.seed)
    told = partial(run, subject, progress=lambda done: link.send(("running", done)))
    found = agreeing(partial(told, budget_s=ask.budget_s))
    usual.timed_sample = subject.timed_sample
    warnings = warnings_of(found)
    sent = measure_senders(found, small or subject, loader_of, ask.pin_memory, SENDERS_SHARE * ask.budget_s)
    measurements = [*costs.measurements(found), *sent, *_pressed(subject, ask.pressure_s, warnings)]
    if small is not None:
        small.timed_sample = subject.timed_sample
        least = costs.measurements(run(small, budget_s=SMALL_SHARE * ask.budget_s, counts=(1,)))
        measurements += of_small(least, small.batch_size)
    reference = costs.usual_sampler_times(found)
    return Calibrated(measurements, warnings, reference, found.sampled, *found.batch_facts, subject.batch_size)


def _pressed(subject: Subject, seconds: float, warnings: list[HostWarning]) -> list[Measurement]:
    """The same few samples beside cores that stream memory, and on both hardware threads of one core.

    Nothing is measured of a stream, which gives no sample twice, nor of samples that need a worker around them.
    """
    if not subject.samples or seconds <= 0 or (subject.timed_sample or (0,))[0] == OWN_WORK:
        return []
    places = [place * subject.samples // PRESSED for place in range(min(PRESSED, subject.samples))]

    def work() -> None:
        subject.seed()
        for place in places:
            subject.sample(place)

    pair = sibling_cpus()
    shared_s = SIBLINGS * seconds if pair else 0.0
    shared = measure_siblings(work, pair, Context(shared_s, warnings=warnings)) if pair else []
    return [*measure_pressure(work, Context(seconds - shared_s, warnings=warnings)), *shared]


def _store(rig: Rig, path: Path) -> None:
    if importlib.util.find_spec("torch") is not None:
        torch = load_torch()
        torch.save(torch.utils.data.default_convert(rig.batch()), path)

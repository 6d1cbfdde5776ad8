"""Run the program's own loader alone, in the process that owns it, with the calibration that all jobs have.

Numpy, torch and the measuring are imported only when a loop that trains has been found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from coresim.errors import InputError
from coresim.model.warning import HostWarning

if TYPE_CHECKING:
    from coresim.measure.calibrate import Calibration
    from coresim.measure.protocol import Progress


def calibrate(
    loader: Any, *, workers: int | None, pin_memory: bool, budget_s: float, progress: Progress = lambda done: None
) -> dict[str, Any]:
    """Run the loader with 1, 2, 4, ... workers, and note what each part costs; plain data, to be written to a file.

    Args:
        loader: the program's own.
        workers: how many the program has. Numbers with which the data set cannot be read are left out, such as more
            workers than a stream has files. If it needs at least as many workers as there are CPUs, they share these.
        pin_memory: whether a thread copies its batches to pinned memory.
        budget_s: wall seconds; slow batches may take longer, and it runs again where the parts of a batch contradict
            what it took.
        progress: called with the fraction done after every batch.

    Raises:
        InputError: the data set or the collate function failed in a worker.
        CoresimError: the parts of a batch contradict what it took.
    """
    from coresim.attaching.skipping import SkippingReader  # noqa: PLC0415 (see the module's text)
    from coresim.measure import calibrate as instrument  # noqa: PLC0415
    from coresim.measure import costs  # noqa: PLC0415
    from coresim.measure.senders import SENDERS_SHARE, measure_senders  # noqa: PLC0415
    from coresim.measure.torch_loader import TorchSubject, of_workload  # noqa: PLC0415
    from coresim.measure.trust import agreeing, warnings_of  # noqa: PLC0415

    subject = TorchSubject(loader, reader=SkippingReader)
    cpus = len(os.sched_getaffinity(0))
    usual = instrument.worker_counts(cpus, subject)
    failure: InputError | None = None
    for counts in (usual, *fallbacks(usual, workers or 0, cpus)):
        run = partial(instrument.calibrate, subject, budget_s=budget_s, counts=counts)
        run = partial(run, pin_memory=pin_memory, reads=not pin_memory, progress=progress)
        try:
            found = agreeing(run)
            break
        except InputError as error:
            failure = failure or error
    else:
        assert failure is not None
        raise failure
    sent = measure_senders(found, subject, of_workload, pin_memory, SENDERS_SHARE * budget_s)
    measured, warnings = [asdict(measurement) for measurement in costs.measurements(found)], warnings_of(found)
    if failure is not None:
        warnings.insert(0, _failed(failure, counts, cpus))
    if 1 not in counts:
        measured = [as_of_one(measurement, min(counts)) for measurement in measured]
    measured += map(asdict, sent)
    return {"loader": subject.loader, "measurements": measured, "warnings": warnings, "broken": broken_samples(found)}


def broken_samples(found: Calibration) -> dict[str, Any] | None:
    """How many samples of all could not be prepared, and what the first one raised; None where all could."""
    notes = [note for run in (*found.runs, *found.inline) for note in (*run.trial.warm_up, *run.trial.notes)]
    errors = [error for note in notes for error in note.broken]
    return {"count": len(errors), "of": sum(len(note.cpu) for note in notes), "first": errors[0]} if errors else None


def fallbacks(usual: Sequence[int], workers: int, cpus: int) -> Iterator[tuple[int, ...]]:
    """Numbers of workers to run where the loader fails with the ``usual`` ones.

    First the numbers up to the CPUs that are below the program's own number, and the own number; then the own number
    alone, with which the loader is known to run, however many CPUs there are.
    """
    fewer = tuple(count for count in usual if count < workers and count <= cpus)
    tried = dict.fromkeys([(*fewer, workers), (workers,)]) if workers else {}
    yield from (counts for counts in tried if counts != tuple(usual))


def as_of_one(measured: dict[str, Any], workers: int) -> dict[str, Any]:
    """The measurements with so many workers, in place of those with one worker, with which the loader fails."""
    name, dot, count = measured["name"].rpartition(".")
    if not dot or count != f"{workers}":
        return measured
    name = f"{name}.1" if name == "scaling" else name
    return measured | {"name": name, "how": f"{measured['how']}; taken for 1 worker, with which the loader fails"}


def _failed(error: InputError, counts: Sequence[int], cpus: int) -> HostWarning:
    """The loader runs with these numbers of workers, and failed with others; what the costs rest on."""
    own, assumed = max(counts), ""
    if 1 not in counts:
        what = f"the loader failed with fewer workers than the program's {own}"
        assumed = f"; one worker is taken to cost what each of {own} did, at once on {cpus} CPU{'s' * (cpus > 1)}"
    elif own > cpus:
        what = f"the loader failed with other numbers of workers than {', '.join(map(str, counts))}"
    else:
        what = f"the loader failed with more workers than the program's {own}"
    remedy = "what others cost is not known; cure that before you change their number"
    return HostWarning(what, f"{error}{assumed}", remedy)

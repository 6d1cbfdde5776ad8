"""The data set in its process, ready to be run, and the loader that runs it."""

from __future__ import annotations

import copy
import importlib.util
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coresim.measure.processes import single_threaded
from coresim.measure.staged import StagedSubject
from coresim.measure.stand_in import StandInSubject
from coresim.measure.subject import Layout, Subject
from coresim.model.loader_settings import LoaderSettings
from coresim.workloads.base import DatasetWorkload, Workload, seed_everything
from coresim.workloads.named import WorkloadSpec

MOST_FILES = 4096
#: The longest that one worker may work on a light batch, s, and the fewest samples of one. A run of two seconds then
#: has enough of them to tell the later ones from the first.
LIGHT_S, LEAST_BATCH = 0.25, 8
#: The longest that a light batch may take, s, the waits of its samples included. A run of two seconds then has enough
#: for a crowd, whose workers show what samples cost where CPUs hardly rest. With fewer samples, hand-over costs could
#: not be scaled to much larger batches.
WAITING_S = 0.5
#: A small batch has so many times fewer samples than a light one.
SMALLER = 8


@dataclass(frozen=True)
class DatasetFacts:
    """What is known of a data set once it is built.

    Attributes:
        name, loader: what the report calls it, and the loader that runs it.
        samples: distinct samples; ``sys.maxsize`` for a stream.
        bytes_per_sample: bytes read per sample, or None where unknown.
        files: the stored files, evenly thinned to some thousands; empty where unknown.
        settings: of the DataLoader that was named, or None.
    """

    name: str
    loader: str
    batch_size: int
    samples: int
    bytes_per_sample: float | None
    files: tuple[Path, ...] = field(repr=False, default=())
    settings: LoaderSettings | None = None


class Rig:
    """The data set in its process, ready to be run."""

    def __init__(self, spec: WorkloadSpec) -> None:
        self.workload = spec.build()
        single_threaded()
        self._subjects: dict[bool, Subject] = {}

    def subject(self, threads: bool) -> Subject:
        """The loader of processes, or the stages in threads; made when first asked for."""
        if threads not in self._subjects:
            self._subjects[threads] = (_stages_of if threads else loader_of)(self.workload)
        return self._subjects[threads]

    def light_subjects(self) -> tuple[Subject, Subject | None]:
        """The loader of processes with light batches: the size is halved until one takes at most `LIGHT_S` of work.

        With the waits of its samples it takes at most `WAITING_S`.

        The second one has batches so small that they tell what handing over any batch costs; None where light batches
        are those that were asked for.

        The cost of a user's own collate function, loader or ``__getitems__`` may not follow the size of a batch, nor
        may what a stream reads ahead; their batches keep their size.
        """
        subject, workload = self.subject(threads=False), self.workload
        at_once = hasattr(getattr(workload, "dataset", None), "__getitems__")
        if workload.has_own_collate or at_once or not subject.samples or workload.batch_size < 2 * LEAST_BATCH:
            return subject, None
        size, (work, whole) = workload.batch_size, _seconds_per_sample(_of_batch(workload, LEAST_BATCH))
        while size * max(work / LIGHT_S, whole / WAITING_S) > 1.0 and size >= 2 * LEAST_BATCH:
            size //= 2
        if size == workload.batch_size:
            return subject, None
        return _of_batch(workload, size), _of_batch(workload, size // SMALLER)

    def facts(self) -> DatasetFacts:
        """What is known of the data set."""
        workload, subject = self.workload, self.subject(threads=False)
        own = workload.settings if isinstance(workload, DatasetWorkload) else {}
        files = workload.files()
        return DatasetFacts(
            name=workload.name,
            loader=subject.loader,
            batch_size=workload.batch_size,
            samples=len(workload) if subject.samples else sys.maxsize,
            bytes_per_sample=workload.bytes_per_sample(),
            files=tuple(files[:: -(-len(files) // MOST_FILES) or 1]),
            settings=LoaderSettings(**own) if own else None,
        )

    def batch(self) -> Any:
        """One collated batch; samples repeat if the data set has too few."""
        pipe = self.subject(threads=False).open(Layout(workers=0), seed=0)
        seed_everything(0)
        return pipe.next()[0]


def loader_of(workload: Workload) -> Subject:
    """torch's DataLoader where torch is installed, else our own."""
    torch = _torch_loader()
    return StandInSubject(workload) if torch is None else torch.of_workload(workload)


def _of_batch(workload: Workload, size: int) -> Subject:
    other = copy.copy(workload)
    other.batch_size = size
    return loader_of(other)


def _seconds_per_sample(subject: Subject) -> tuple[float, float]:
    """About how many seconds one worker with a core needs for a sample: its work, and the whole time.

    Its second batch shows that: first calls import and allocate.
    """
    with closing(subject.open(Layout(workers=1), seed=0)) as pipe:
        pipe.stop()
        pipe.next()
        note = pipe.next()[1]
    whole = note.made - note.began - (note.queued or 0.0)
    return float(sum(note.cpu) + note.collate) / subject.batch_size, float(whole) / subject.batch_size


def _stages_of(workload: Workload) -> Subject:
    torch = _torch_loader()
    collate = workload.collate if torch is None else torch.collation(workload)
    return StagedSubject(workload, collate)


def _torch_loader() -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    from coresim.measure import torch_loader  # noqa: PLC0415 (torch is optional and heavy)

    single_threaded()  # of torch too, now that it is there
    return torch_loader

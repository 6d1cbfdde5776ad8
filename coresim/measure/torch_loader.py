"""A job's own ``DataLoader`` as a subject: its data set, sampler, collate function and workers, with notes.

Nothing of the job is wrapped or copied. A worker calls the loader's ``worker_init_fn`` before it makes its fetcher,
the object that prepares a batch (``torch/utils/data/_utils/worker.py``). Ours calls the job's own, and then replaces
torch's fetcher by one that notes what each part costs. With a fork nothing is pickled; other start methods work too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any

from torch.utils import data
from torch.utils.data import DataLoader

from coresim.errors import InputError
from coresim.measure.notes import Note, PinMark, Prepared, Reader, unpacked
from coresim.measure.subject import PATIENCE, SILENT, Layout, Pipe, Subject, batches_of
from coresim.measure.worker import leave_inherited
from coresim.units import short
from coresim.workloads.base import DatasetWorkload, Workload, blamed, default_collate, describe

#: What torch calls to make the object that prepares batches, in a worker or in the trainer.
_FACTORY: Any = data._DatasetKind
_PREFIX = "InputError: "
_MARK = PinMark()


class TorchSubject(Subject):
    """The loader that a `DataLoader` describes; the object itself is left alone.

    ``batches``: for an endless map-style loader of our own, gives the index batches of a seed; None: the job's own
    sampler, started over when it ends. ``reader``: what prepares a batch, and notes what its parts cost.
    """

    loader = "the job's own DataLoader"

    def __init__(
        self, loader: Any, batches: Callable[[int], Iterator[list[int]]] | None = None, reader: type[Reader] = Reader
    ) -> None:
        self._loader, self._batches = loader, batches
        self._fetcher = partial(_Fetcher, reader)
        self._dataset, self.context = loader.dataset, loader.multiprocessing_context
        self._iterable = isinstance(self._dataset, data.IterableDataset)
        self._batched = loader.batch_sampler is not None or (self._iterable and loader.batch_size is not None)
        size = getattr(loader.batch_sampler, "batch_size", None) or loader.batch_size
        self.batch_size = int(size) if isinstance(size, int) else 1
        self.steps = self._dataset.names if isinstance(self._dataset, Prepared) else ()
        self.samples = 0 if self._iterable else len(self._dataset)

    def open(self, layout: Layout, seed: int) -> Pipe:
        """Start the loader with so many workers."""
        with warnings.catch_warnings():  # of more workers than CPUs, which is what is tried
            warnings.simplefilter("ignore")
            return _TorchPipe(self._clone(layout, seed), layout.workers, self._fetcher)

    def _clone(self, layout: Layout, seed: int) -> Any:
        job, own = self._loader, self._sampling(seed)
        if layout.workers:
            own |= {
                "prefetch_factor": layout.prefetch_factor,
                "multiprocessing_context": self.context,
                "timeout": PATIENCE,
            }
        if not layout.ordered:  # loaders before torch 2.6 do not know it
            own["in_order"] = False
        return DataLoader(
            self._dataset,
            num_workers=layout.workers,
            collate_fn=job.collate_fn,
            pin_memory=layout.pin_memory,
            worker_init_fn=partial(_start, job.worker_init_fn, self._fetcher),
            generator=job.generator,
            **own,
        )

    def _sampling(self, seed: int) -> dict[str, Any]:
        job = self._loader
        if self._iterable:
            return {"batch_size": job.batch_size, "drop_last": self._batched}
        if self._batches is not None:
            return {"batch_sampler": self._batches(seed)}
        if self._batched:
            return {"batch_sampler": _whole(job.batch_sampler)}
        return {"batch_size": None, "sampler": _over_again(job.sampler)}


def of_workload(workload: Workload) -> TorchSubject:
    """The loader that a training script would make of a built-in workload or of a user's data set by its name."""
    size = workload.batch_size
    own: dict[str, Any] = {"collate_fn": collation(workload)}
    if isinstance(workload, DatasetWorkload):
        if workload.loader is not None:
            return TorchSubject(workload.loader)
        own["worker_init_fn"] = workload.worker_init
        if workload.context is not None:  # only a loader with workers may have one
            own |= {"multiprocessing_context": workload.context, "num_workers": 1}
        is_torch = isinstance(workload.dataset, data.IterableDataset)
        dataset: Any = workload.dataset if workload.is_map or is_torch else _Iterable(workload.dataset)
    else:
        dataset = Prepared(workload)
    loader: Any = DataLoader(dataset, batch_size=size, **own)  # type: ignore[arg-type]
    stream = isinstance(dataset, data.IterableDataset)
    made = TorchSubject(loader, None if stream else partial(batches_of, min(len(dataset), 10**6), size))
    made.loader = "torch's DataLoader"
    return made


class _Iterable(data.IterableDataset[Any]):
    """An object that only iterates, as torch wants one."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)


def collation(workload: Workload) -> Callable[[list[Any]], Any]:
    """The collate function of a DataLoader for this job: it gives tensors, unless the user has one."""
    if isinstance(workload, DatasetWorkload) and workload.has_own_collate:
        return workload.collate
    if not workload.has_own_collate:
        return _collated
    convert: Callable[[Any], Any] = data.default_convert
    return lambda samples: convert(workload.collate(samples))


def _collated(samples: list[Any]) -> Any:
    """torch's default; what torch cannot stack, such as bytes, stays a list."""
    try:
        return data.default_collate(samples)
    except TypeError:
        return default_collate(samples)


def _start(own: Callable[[int], None] | None, fetcher: Callable[..., _Fetcher], number: int) -> None:
    """A ``worker_init_fn``: the job's own, and then the fetcher that notes."""
    leave_inherited()
    if own is not None:
        with blamed("the loader's worker_init_fn", "fix it"):
            own(number)
    _FACTORY.create_fetcher = staticmethod(fetcher)


class _Fetcher:
    """In the place of torch's fetchers; what goes wrong is told as one line."""

    def __init__(
        self, reader: type[Reader], kind: Any, dataset: Any, batched: bool, collate: Any, drop_last: bool
    ) -> None:
        with blamed("iterating over the data set", "fix the data set"):
            self._reader = reader(dataset, kind == _FACTORY.Iterable, batched, collate)
        self._sent = data.get_worker_info() is None  # the trainer sends nothing

    def fetch(self, index: Any) -> tuple[PinMark, Any, Note]:
        """The mark, a batch and its note."""
        remedy = "fix the data set or the collate function, or leave that sample out"
        with blamed(f"preparing the batch of samples {short(index)}", remedy):
            batch, note = self._reader.fetch(index)
        if not self._sent:
            self._sent, note = True, note.with_message(batch)
        return _MARK, batch, note


def _dealt(indices: Iterator[Any], over: Event) -> Iterator[Any]:
    """The indices that a running loader deals, until it is stopped; none is drawn in vain."""
    for index in indices:
        yield index
        if over.is_set():
            return


class _TorchPipe(Pipe):
    def __init__(self, loader: Any, workers: int, fetcher: Callable[..., _Fetcher]) -> None:
        self.inline, usual = not workers, _FACTORY.create_fetcher
        if self.inline:  # it makes its fetcher in this process
            _FACTORY.create_fetcher = staticmethod(fetcher)
        try:
            self._batches: Any = iter(loader)
        finally:
            _FACTORY.create_fetcher = staticmethod(usual)
        self._over = over = Event()
        self._batches._sampler_iter = _dealt(self._batches._sampler_iter, over)
        self._most = 0 if self.inline else workers * loader.prefetch_factor

    def next(self) -> tuple[Any, Note]:
        """The loader's next batch; what went wrong in a worker is raised as what it was there."""
        try:
            mark, batch, note = next(self._batches)
        except InputError as error:  # torch makes a worker's traceback the message of the same error
            raise InputError(str(error).strip().splitlines()[-1].partition(_PREFIX)[2] or str(error)) from None
        except RuntimeError as error:
            text = describe(error)
            failed = f"the loader failed: {text}; is memory or /dev/shm short?"
            raise InputError(SILENT.format(PATIENCE) if "timed out" in text else failed) from None
        note = unpacked(note)
        if self.inline or isinstance(mark, PinMark):  # no thread pins
            return batch, note
        pinned, pin_clock = mark
        return batch, note._replace(pinned=pinned, pin_clock=pin_clock)

    def stop(self) -> int:
        """Deal no more indices: the workers come to rest when they have made what is out."""
        self._over.set()
        return self._most

    def pids(self) -> tuple[int, ...]:
        """The worker processes."""
        return () if self.inline else tuple(worker.pid for worker in self._batches._workers)

    def close(self) -> None:
        """Let torch shut its workers down."""
        if not self.inline:
            with suppress(RuntimeError):  # one that dies while it ends, as spawned ones may, has given all that it made
                self._batches._shutdown_workers()


def _over_again(sampler: Any) -> Iterator[Any]:
    while True:
        empty = True
        for index in sampler:
            empty = False
            yield index
        if empty:
            raise InputError("the sampler gives no index; is the data set empty?")


def _whole(batch_sampler: Any) -> Iterator[Any]:
    """The job's own batches without its last, partial ones, unless there is no other, or they have no one size."""
    first, size = None, getattr(batch_sampler, "batch_size", None)
    for batch in _over_again(batch_sampler):
        first = batch if first is None else first
        if size is None or len(batch) == size or len(first) != size:
            yield batch

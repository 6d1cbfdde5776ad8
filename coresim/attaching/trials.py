"""The program's own loop, fed by its own loader with another number of workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

DEFAULT_PREFETCH = 2
#: torch's mark of a data set that is read by index (torch.utils.data._DatasetKind).
MAP = 0
#: Errors of a loader that may come before its first batch, where the program goes on after them.
ERRORS = 3
#: How torch begins the error of a sample in a worker; its own errors begin otherwise.
OF_A_WORKER = "Caught "
#: A loader without a time-out of its own that gives no batch for so long hangs, s.
PATIENCE_S = 300.0


def twin(loader: Any, **changes: Any) -> Any:
    """A loader of the same class with the same attributes, but for ``changes``, and no iterator."""
    copy = object.__new__(type(loader))
    copy.__dict__.update(loader.__dict__)
    copy.__dict__.update(changes, _iterator=None)
    return copy


def loader_of(iterator: Any) -> Any:
    """What is known of the loader of an iterator that began before the hooks came: enough to run it again."""
    batched = iterator._auto_collation
    return SimpleNamespace(
        dataset=iterator._dataset,
        batch_size=getattr(iterator._index_sampler, "batch_size", None) if batched else None,
        batch_sampler=iterator._index_sampler if batched else None,
        sampler=None if batched else iterator._index_sampler,
        collate_fn=iterator._collate_fn,
        timeout=iterator._timeout,
        worker_init_fn=getattr(iterator, "_worker_init_fn", None),
        multiprocessing_context=_context(iterator),
        generator=None,
    )


def _context(iterator: Any) -> Any:
    """The context that starts workers as the iterator's own were started; None: the usual one, or no workers."""
    method = next((getattr(worker, "_start_method", None) for worker in getattr(iterator, "_workers", ())), None)
    return multiprocessing.get_context(method) if method else None


class Endless:
    """The indices of a sampler, without end, because the starts of short epochs would hide the loop's throughput."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __getattr__(self, name: str) -> Any:
        if name == "_sampler":  # a copy that has none yet
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        given = 1
        while given:
            given = 0
            for given, indices in enumerate(self._sampler, 1):  # noqa: B007 (an empty sampler gives none)
                yield indices


class AttachedTrial:
    """Batches of the program's loader with so many workers, without end; a stream begins anew where it ends.

    Args:
        prefetch_factor: the loader's own; torch's default where it has no workers.
        inner: the iterators' own ``__next__``.
        skips: the program goes on after errors of its loader, so that a few of them are no failure.

    Attributes:
        failed: why the loader cannot be run with so many, in one line; None while it can.
    """

    def __init__(
        self,
        loader: Any,
        workers: int,
        prefetch_factor: int | None,
        inner: Callable[[Any], Any],
        skips: bool = False,
    ) -> None:
        self.workers = workers
        #: How many more errors the loader may raise before it counts as failing: each batch adds one.
        self._skips, self._allowed = skips, ERRORS
        self.failed: str | None = None
        own = {
            "num_workers": workers,
            "prefetch_factor": (prefetch_factor or DEFAULT_PREFETCH) if workers else None,
            "timeout": (loader.timeout or PATIENCE_S) if workers else 0,  # torch has none without workers
            "persistent_workers": False,
        }
        if getattr(loader, "_dataset_kind", None) == MAP:
            source = "sampler" if loader.batch_sampler is None else "batch_sampler"
            own[source] = Endless(getattr(loader, source))
        self._loader = twin(loader, **own)
        # torch warns of more workers than CPUs, which is what may be tried here.
        self._loader.__dict__["check_worker_number_rationality"] = lambda: None
        self._inner = inner
        self._iterator: Any = None

    def next(self) -> tuple[Any, bool] | None:
        """A batch, and whether an epoch began with it; None where the loader fails with so many workers."""
        first: Exception | None = None
        while self.failed is None:
            try:
                given = self._next()
            except Exception as error:  # of the program's own code, which was not made for so many
                first = first or error
                own = not self.workers or str(error).startswith(OF_A_WORKER)
                if not (self._skips and own and self._allowed):
                    self.failed = one_line(first)
                    self.close()
                self._allowed -= 1
            else:
                self._allowed += 1
                return given
        return None

    def _next(self) -> tuple[Any, bool]:
        if self._iterator is not None:
            try:
                return self._inner(self._iterator), False
            except StopIteration:
                self._iterator = None
        self._iterator = type(self._loader)._get_iterator(self._loader)
        return self._inner(self._iterator), True

    def close(self) -> None:
        """End its workers."""
        iterator, self._iterator = self._iterator, None
        if iterator is not None and self.workers:
            iterator._shutdown_workers()


def one_line(error: Exception) -> str:
    """The last line of an error: torch puts a worker's error after the worker's traceback."""
    if isinstance(error, StopIteration):
        return "it gave no batch"
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[-1].strip() if len(lines) > 1 else f"{type(error).__name__}: {lines[0]}"

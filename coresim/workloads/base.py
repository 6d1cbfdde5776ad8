"""What a workload is: the work that a loader does for one sample and for one batch, as named steps.

To add one, subclass `Workload`, set ``name`` and ``batch_size``, and write ``make``, ``__len__``, ``fetch``, and
where there is such work ``decode`` and ``transform``; `coresim.workloads.images` is the example. A user's own dataset
needs no subclass: `DatasetWorkload` wraps any object that can be indexed or iterated.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coresim.errors import InputError

#: Bytes of a page of memory, or less: what is mapped at once.
PAGE = 4096

Collate = Callable[[list[Any]], Any]


class PreparationStep(NamedTuple):
    """One named part of preparing a sample: ``call(value, rng)`` gives the next step's value."""

    name: str
    call: Callable[[Any, np.random.Generator], Any]


class Workload:
    """The base class; ``folder`` is where a workload keeps the data that it makes."""

    name: str = "workload"  # what the report calls it
    batch_size: int = 64  # unless the user says otherwise

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self) -> None:
        """Write small, realistic data into ``self.folder``, before any process measures.

        It may be called again on the same folder.
        """

    def __len__(self) -> int:
        """The number of distinct samples."""
        raise NotImplementedError

    def fetch(self, index: int) -> Any:
        """Read the stored form of one sample, such as its file's bytes."""
        raise NotImplementedError

    def decode(self, raw: Any) -> Any:
        """Turn the stored form into values, such as pixels; by default they are the same."""
        return raw

    def transform(self, x: Any, rng: np.random.Generator) -> Any:
        """Augment and convert one decoded sample; by default it stays as it is."""
        return x

    def steps(self) -> tuple[PreparationStep, ...]:
        """The steps of one sample in order; the first is given the index."""
        return (
            PreparationStep("fetch", lambda index, _: self.fetch(index)),
            PreparationStep("decode", lambda raw, _: self.decode(raw)),
            PreparationStep("transform", self.transform),
        )

    def collate(self, samples: list[Any]) -> Any:
        """Join prepared samples into one batch, in memory of its own."""
        return default_collate(samples)

    @property
    def has_own_collate(self) -> bool:
        """Whether `collate` is more than the default, which a loader with a default of its own would use instead."""
        return type(self).collate is not Workload.collate

    def files(self) -> Sequence[Path]:
        """The stored files, for the storage measurement; none where the workload cannot tell."""
        return ()

    def bytes_per_sample(self) -> float | None:
        """Mean bytes read per sample; None where the workload cannot tell."""
        files = self.files()
        return sum(path.stat().st_size for path in files) / len(files) if files else None


class DatasetWorkload(Workload):
    """A user's own dataset as a workload: loaders take ``dataset`` itself, and not its `steps`.

    ``worker_init`` is what each worker process calls with its number when it starts. ``loader`` is the job's own
    ``DataLoader`` of this dataset, to be run with its sampler; ``settings`` has what it is set to, by the names of
    `coresim.model.loader_settings.LoaderSettings`. ``is_map``: whether the dataset can be indexed.

    Raises:
        InputError: no dataset of either kind (indexable with a length, or iterable), or an empty one.
    """

    def __init__(
        self,
        dataset: Any,
        name: str,
        collate: Collate | None = None,
        worker_init: Callable[[int], None] | None = None,
        loader: Any = None,
    ) -> None:
        super().__init__(Path())
        self.name = name
        self.dataset, self.worker_init, self.loader = dataset, worker_init, loader
        self._collate = collate or _collate_of(dataset)
        self._own_collate = collate is not None
        self.settings: dict[str, Any] = {}
        self.context: Any = None  # the job's own multiprocessing_context, where it is run without its loader
        self.is_map = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not self.is_map and not hasattr(dataset, "__iter__"):
            kind = type(dataset).__name__
            needs = "a dataset has __len__ and __getitem__, or __iter__"
            raise InputError(f"{name}: gives an object of type {kind}; {needs}")

    def fetch(self, index: int) -> int:
        """For stages in threads: no separate fetch is known, so all of a sample is preprocessing."""
        if not self.is_map:
            raise InputError(f"{self.name}: gives samples one after the other; stages need a data set with __getitem__")
        return index

    def decode(self, raw: int) -> Any:
        """For stages in threads: all of the sample."""
        with blamed(f"{self.name}: preparing sample {raw}", "fix the data set, or leave that sample out"):
            return self.dataset[raw]

    def __len__(self) -> int:
        """The dataset's length; a stream counts as endless, since it starts over."""
        return len(self.dataset) if self.is_map else sys.maxsize

    def collate(self, samples: list[Any]) -> Any:
        """The user's collate function, or the default; what it raises is an `InputError` that names it."""
        with blamed(f"{self.name}: collating {len(samples)} samples", "give a collate function that joins them"):
            return self._collate(samples)

    @property
    def has_own_collate(self) -> bool:
        """Whether the user gave a function."""
        return self._own_collate


def _collate_of(dataset: Any) -> Collate:
    """torch's own default for a torch dataset, else `default_collate`; torch is never imported for this."""
    data = sys.modules.get("torch.utils.data")
    return data.default_collate if data and isinstance(dataset, data.Dataset) else default_collate


def default_collate(samples: list[Any]) -> Any:
    """Stack arrays, numbers and torch tensors; tuples, lists and mappings recursively; keep anything else a list."""
    if any(sample is None for sample in samples):
        # torch's own default refuses it too.
        raise TypeError("a sample, or a part of it, is None: return its values, or leave it out when collating")
    first = samples[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        return torch.stack(samples)
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple | list):
        return tuple(default_collate(list(part)) for part in zip(*samples, strict=True))
    return np.stack(samples) if isinstance(first, np.ndarray | np.number | int | float) else samples


def padded(arrays: list[np.ndarray]) -> np.ndarray:
    """Arrays of as many axes in one new array, each filled up with zeros to the largest size of each axis."""
    shape = np.max([array.shape for array in arrays], axis=0)
    joined = np.zeros((len(arrays), *shape), dtype=arrays[0].dtype)
    for slot, array in zip(joined, arrays, strict=True):
        slot[tuple(map(slice, array.shape))] = array
    return joined


def mapped(batch: Any, change: Callable[[Any], Any]) -> Any:
    """A batch with ``change`` applied to every part in its mappings, lists and (named) tuples."""
    if isinstance(batch, Mapping):
        return {key: mapped(part, change) for key, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [mapped(part, change) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return change(batch)


def batch_facts(batch: Any) -> tuple[int, int]:
    """Bytes and number of arrays (or tensors) in a batch."""
    if isinstance(batch, Mapping):
        return batch_facts(list(batch.values()))
    if isinstance(batch, tuple | list):
        parts = [batch_facts(part) for part in batch]
        return sum(size for size, _ in parts), sum(count for _, count in parts)
    if isinstance(batch, bytes | bytearray | str):
        return len(batch), 0
    size = getattr(batch, "nbytes", None)
    return (int(size), 1) if isinstance(size, int) else (0, 0)


def touch(batch: Any) -> int:
    """Read a byte of every page of a batch's arrays and tensors, as a program that reads them does; the pages read.

    They are read where they lie, whatever their type and order. Parts without memory of their own on the host, such as
    a list, a sparse tensor or one on a device, are left out.
    """
    pages: list[int] = []

    def read(part: Any) -> None:
        numbers = _bytes_of(part)
        if numbers is not None:
            numbers[::PAGE].max()
            pages.append(len(numbers[::PAGE]))

    mapped(batch, read)
    return sum(pages)


def _bytes_of(part: Any) -> NDArray[np.uint8] | None:
    """The memory of an array or of a tensor on the host, without a copy; None where there is none to be had."""
    if isinstance(part, np.ndarray):
        whole = part.size > 0 and part.flags.forc and not part.dtype.hasobject
        return part.reshape(-1, order="A").view(np.uint8) if whole else None
    if not hasattr(part, "untyped_storage") or part.device.type != "cpu" or str(part.layout) != "torch.strided":
        return None
    storage = part.untyped_storage()
    size = storage.nbytes()
    return np.frombuffer((ctypes.c_uint8 * size).from_address(storage.data_ptr()), np.uint8) if size else None


@contextmanager
def blamed(what: str, remedy: str) -> Iterator[None]:
    """A context around the user's code: an error there becomes a one-line `InputError` that says ``what`` raised it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} raised {describe(error)}; {remedy}") from error


def describe(error: BaseException) -> str:
    """An exception as one line: its type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def seed_everything(seed: int) -> np.random.Generator:
    """Seed Python's, numpy's and a loaded torch's generators, so that a repeat does the very same work."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
    return np.random.default_rng(seed)

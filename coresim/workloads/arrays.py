"""Numbers in memory-mapped arrays: bound by memory traffic, by the cost of a call, or by handing batches over.

A page of the map that has been read once is in the page cache, which all workers share.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

import numpy as np

from coresim.workloads.base import Workload

FILE, MIB = "array.npy", 2**20
#: Each thread's own copy of a slab.
_OWN = threading.local()


class ArrayWorkload(Workload):
    """Samples are slices of one ``.npy`` file that is mapped into memory.

    It has no `files`: the time to read it whole would say nothing of a sample.
    """

    def make(self) -> None:
        """Write the array, always the same one, unless it is there already."""
        if not (self.folder / FILE).exists():
            np.save(self.folder / FILE, self.array(np.random.default_rng(7)))

    def array(self, rng: np.random.Generator) -> np.ndarray:
        """The whole array."""
        raise NotImplementedError

    @cached_property
    def _array(self) -> np.ndarray:
        # Copy on write: what is read can be made a tensor without a warning, and nothing is written back.
        return np.asarray(np.load(self.folder / FILE, mmap_mode="c"))

    def __len__(self) -> int:
        """The length of the array's first axis."""
        return len(self._array)

    def fetch(self, index: int) -> Any:
        """One item along the first axis: a view, whose pages are read when they are used."""
        return self._array[index]

    def bytes_per_sample(self) -> float:
        """Bytes of one item."""
        return float(self._array[0].nbytes)


class MemoryBoundWorkload(ArrayWorkload):
    """Copy, scale and sum up slabs of 32 MiB of a table of 256 MiB: nearly all of the time is memory traffic.

    Both are far beyond the private caches, and a slab with its copy is beyond the last-level cache of most
    machines (a few MiB per core). The copy lives in one buffer per thread, so that no page is faulted in again.
    """

    name = "table slabs of 32 MiB"
    batch_size = 4
    slab, table, columns = 32 * MIB, 256 * MIB, 1024
    starts = 57

    def array(self, rng: np.random.Generator) -> np.ndarray:
        """The table, float32."""
        return rng.random((self.table // (4 * self.columns), self.columns), dtype=np.float32)

    def __len__(self) -> int:
        """Slabs overlap: they begin 4 MiB apart."""
        return self.starts

    def bytes_per_sample(self) -> float:
        """Bytes of a slab."""
        return float(self.slab)

    def fetch(self, index: int) -> np.ndarray:
        """A slab's rows, as they lie in the table."""
        first = index * (self.table - self.slab) // (self.starts - 1) // (4 * self.columns)
        return np.asarray(self._array[first : first + self.slab // (4 * self.columns)])

    def decode(self, raw: np.ndarray) -> np.ndarray:
        """A copy, scaled in place."""
        if not hasattr(_OWN, "slab"):
            _OWN.slab = np.zeros(raw.shape, dtype=np.float32)
        slab: np.ndarray = _OWN.slab
        np.copyto(slab, raw)
        np.multiply(slab, np.float32(0.5), out=slab)
        return slab

    def transform(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The sum of each column: float32, one value per column."""
        return np.asarray(x.sum(axis=0))


class TinyWorkload(ArrayWorkload):
    """One row of a table per sample: 13 numbers and 26 categories, as of the Criteo click logs.

    Ten to forty microseconds of numpy calls per sample, so that the loader's own work per sample and per batch
    counts. The row's make-up: kaggle.com/c/criteo-display-ad-challenge.
    """

    name = "tabular rows, one at a time"
    batch_size = 1024
    rows, numbers, categories, buckets = 65_536, 13, 26, 100_003

    def array(self, rng: np.random.Generator) -> np.ndarray:
        """Counts and category hashes, int32."""
        counts = rng.geometric(0.02, (self.rows, self.numbers)).astype(np.int32)
        return np.hstack([counts, rng.integers(0, 2**31, (self.rows, self.categories), dtype=np.int32)])

    def fetch(self, index: int) -> np.ndarray:
        """A copy of the row."""
        return np.array(self._array[index])

    def decode(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and categories apart."""
        return raw[..., : self.numbers], raw[..., self.numbers :]

    def transform(self, x: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The logarithm of the numbers, clipped and centred, and the buckets of the categories."""
        numbers, categories = x
        scaled = np.clip(np.log1p(numbers) - 3.5, -3.0, 3.0).astype(np.float32)
        return scaled, categories % self.buckets


class TabularWorkload(TinyWorkload):
    """Blocks of 512 rows gathered at random from a table of 82 MB: a shuffled table read block by block."""

    name = "tabular rows, 512 at a time"
    batch_size = 8
    rows, block = 524_288, 512

    def __len__(self) -> int:
        """Blocks of an epoch."""
        return self.rows // self.block

    def bytes_per_sample(self) -> float:
        """Bytes of a block."""
        return self.block * super().bytes_per_sample()

    def fetch(self, index: int) -> np.ndarray:
        """Copies of the block's rows, which lie anywhere in the table."""
        chosen = np.random.default_rng(index).integers(0, self.rows, self.block)
        return np.asarray(self._array[chosen])


class TensorWorkload(ArrayWorkload):
    """Prepared tensors of 1 MiB each, as of precomputed features: hardly any work but joining and handing over."""

    name = "prepared tensors of 1 MiB"
    batch_size = 32
    count = 96

    def array(self, rng: np.random.Generator) -> np.ndarray:
        """The tensors, float16: (16, 256, 128) each."""
        return np.asarray(rng.random((self.count, 16, 256, 128), dtype=np.float32).astype(np.float16))

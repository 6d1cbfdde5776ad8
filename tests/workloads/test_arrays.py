"""Memory traffic: slabs that no private cache holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coresim.workloads.arrays import MIB, MemoryBoundWorkload


@pytest.mark.slow
def test_slabs_are_far_beyond_the_private_caches_and_stay_inside_the_table(tmp_path: Path) -> None:
    workload = MemoryBoundWorkload(tmp_path)
    workload.make()
    assert workload.slab >= 32 * MIB and workload.table >= 8 * workload.slab
    [path] = tmp_path.iterdir()
    table = np.load(path, mmap_mode="r")
    assert table.nbytes == workload.table
    assert np.array_equal(workload.fetch(len(workload) - 1)[-1], table[-1])
    assert np.array_equal(workload.fetch(1)[0], table[4 * MIB // table[0].nbytes])

"""Patches of volumes: three formats hold the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared import same

from coresim.workloads.volumes import Hdf5VolumeWorkload, NpyVolumeWorkload, NpzVolumeWorkload


def test_the_three_formats_hold_the_same_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    monkeypatch.setattr(NpyVolumeWorkload, "count", 1)
    workloads = [kind(tmp_path) for kind in (NpyVolumeWorkload, NpzVolumeWorkload, Hdf5VolumeWorkload)]
    for workload in workloads:
        workload.make()
    patches = [workload.decode(workload.fetch(3)) for workload in workloads]
    assert patches[0].shape == (96, 96, 96) and patches[0].std() > 100
    assert same(patches[0], patches[1]) and same(patches[0], patches[2])

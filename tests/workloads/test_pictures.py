"""Pictures: the formats in which they are kept, and what those take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import picture_formats
import pytest
from shared import same


def test_the_formats_hold_the_same_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    monkeypatch.setattr(picture_formats.JpegImages, "count", 1)
    kinds = [picture_formats.JpegImages, picture_formats.PngImages, picture_formats.BmpImages]
    kinds += [picture_formats.NpyImages, picture_formats.NpzImages, picture_formats.Hdf5Images]
    workloads = [kind(tmp_path) for kind in kinds]
    for workload in workloads:
        workload.make()
    pictures = [np.asarray(workload.decode(workload.fetch(0))) for workload in workloads]
    sizes = [float(workload.bytes_per_sample() or 0) for workload in workloads]
    assert all(same(picture, pictures[0]) for picture in pictures)
    # JPEG loses something for its few bytes, PNG and deflating lose nothing, and the others are pixels and a header.
    assert 2 * sizes[0] < sizes[1] < sizes[4] < pictures[0].nbytes < min(sizes[2], sizes[3], sizes[5])
    assert max(sizes) < 1.02 * pictures[0].nbytes

"""The default workload: pictures like ImageNet's, decoded, cropped and normalised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coresim.workloads.base import batch_facts, seed_everything
from coresim.workloads.images import ImageWorkload, crop_box


def test_generated_images_are_like_imagenet(tmp_path: Path) -> None:
    workload = ImageWorkload(tmp_path)
    workload.make()
    sizes = np.array([path.stat().st_size for path in workload.files()])
    pixels = np.array([np.prod(Image.open(path).size) for path in workload.files()])
    assert len(workload) == 96
    assert sizes.mean() == pytest.approx(108e3, rel=0.15) and workload.bytes_per_sample() == sizes.mean()
    assert pixels.mean() == pytest.approx(182e3, rel=0.15)
    assert 0.4 < sizes.std() / sizes.mean() < 1.2
    first = workload.files()[0].stat().st_mtime_ns
    workload.make()
    assert workload.files()[0].stat().st_mtime_ns == first


def test_an_image_becomes_a_normalised_array_and_repeats_exactly(tmp_path: Path) -> None:
    Image.fromarray(np.full((300, 400, 3), 255, dtype=np.uint8)).save(tmp_path / "white.JPEG", quality=100)
    workload = ImageWorkload(tmp_path)
    picture = workload.decode(workload.fetch(0))
    prepared = workload.transform(picture, seed_everything(1))
    assert prepared.shape == (3, 224, 224) and prepared.dtype == np.float32 and prepared.flags.c_contiguous
    assert prepared[:, 0, 0] == pytest.approx((1 - np.array([0.485, 0.456, 0.406])) / [0.229, 0.224, 0.225], abs=1e-5)
    assert np.array_equal(prepared, workload.transform(picture, seed_everything(1)))
    assert batch_facts(workload.collate([prepared] * 4)) == (4 * 3 * 224 * 224 * 4, 1)


def test_crops_stay_inside_and_have_the_areas_asked_for() -> None:
    rng = np.random.default_rng(0)
    areas = []
    for _ in range(500):
        left, top, width, height = crop_box(500, 375, rng)
        assert 0 <= left <= 500 - width and 0 <= top <= 375 - height
        areas.append(width * height / (500 * 375))
    assert 0.07 < min(areas) < 0.12 and 0.9 < max(areas) <= 1.0
    assert crop_box(1000, 2, rng)[2:] == (2, 2)

"""Strong augmentation and detection: what is done to a picture and its boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from shared import same

from coresim.workloads.augmented import OPERATIONS, DetectionWorkload, Scene, erase
from coresim.workloads.pictures import Painter


def test_operations_keep_size_and_mode_and_do_nothing_at_magnitude_zero() -> None:
    picture = Painter(np.random.default_rng(0), 64).draw(48, 40)
    for operation in OPERATIONS:
        for magnitude in (-0.9, 0.9):
            changed = operation(picture, magnitude)
            assert (changed.size, changed.mode) == (picture.size, "RGB")
    changed_at_zero = [not same(operation(picture, 0.0), picture) for operation in OPERATIONS]
    # Two of the fourteen, contrast and equalisation, have no magnitude.
    assert sum(changed_at_zero) == 2 and len(OPERATIONS) == 14


def test_erasing_covers_2_to_33_percent() -> None:
    shares = []
    for seed in range(50):
        values = np.full((3, 100, 100), 9.0, dtype=np.float32)
        erase(values, np.random.default_rng(seed))
        shares.append(np.mean(values != 9.0))
    assert 0.02 <= min(shares) < 0.1 and 0.25 < max(shares) <= 0.34


@pytest.mark.parametrize("seed", range(4))
def test_boxes_follow_their_picture(seed: int) -> None:
    pixels = np.zeros((480, 640, 3), dtype=np.uint8)
    pixels[100:200, 50:150] = 255
    boxes = np.array([[50, 100, 150, 200]], dtype=np.float32)
    scene = DetectionWorkload(Path()).transform(Scene(Image.fromarray(pixels), boxes), np.random.default_rng(seed))
    left, top, right, bottom = scene.boxes[0].round().astype(int)
    assert scene.picture.shape[1:] == (800, 1067)
    assert scene.boxes[0, 2:] - scene.boxes[0, :2] == pytest.approx([500 / 3, 500 / 3], rel=1e-5)
    inside = scene.picture[:, top + 2 : bottom - 2, left + 2 : right - 2]
    assert inside.min() > 2.0 > -1.0 > scene.picture[:, :, : left - 2].max()

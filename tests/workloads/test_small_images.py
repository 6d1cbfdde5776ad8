"""Small pictures: a few large ones among them, and reads that wait."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coresim.workloads.small_images import HeavyTailedWorkload, WaitingWorkload


def test_one_in_25_is_10_to_30_times_dearer() -> None:
    pixels = np.array(HeavyTailedWorkload(Path()).pixels())
    assert np.mean(pixels > np.median(pixels)) == 1 / 25
    # Measured CPU time follows pixels plus a part per sample, which makes 10 to 30 of these.
    assert 30 < pixels[0] / pixels[-1] < pixels.max() / pixels[-1] < 110


def test_waiting_outweighs_the_work_and_is_the_same_each_time() -> None:
    workload = WaitingWorkload(Path())
    waits = [workload.latency(index) for index in range(256)]
    assert waits == [workload.latency(index) for index in range(256)]
    assert np.median(waits) == pytest.approx(8e-3, rel=0.15) and max(waits) <= 0.1
    assert len(set(waits)) > 200

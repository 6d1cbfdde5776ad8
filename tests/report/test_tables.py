"""Results as pandas tables."""

from __future__ import annotations

import pytest

import coresim

TABLES = {
    "workload": {"batch_size": 8, "preprocess": "4 ms", "fetch": "1 ms", "consumer": "1 ms", "batch_bytes": 1e6},
    "accelerator": {"step": "12 ms", "launch": "1 ms"},
    "host": {"cores": 2, "threads_per_core": 2, "shm_bytes": 1e6},
}


@pytest.fixture(scope="module")
def answer():
    return coresim.recommend(TABLES)


def test_frame_has_every_point_of_every_curve(answer):
    frame = answer.to_frame()
    assert len(frame) == sum(len(option.curve) for option in answer.result.options)
    row = frame[(frame.option == answer.result.point.option) & (frame.cores_per_gpu == answer.cores_per_gpu)].iloc[0]
    assert row.gpu_idle == answer.gpu_idle

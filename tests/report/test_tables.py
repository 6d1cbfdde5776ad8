"""Results as pandas tables."""

from __future__ import annotations


def test_frame_has_every_point_of_every_curve(answer):
    frame = answer.to_frame()
    assert len(frame) == sum(len(option.curve) for option in answer.result.options)
    row = frame[(frame.option == answer.result.point.option) & (frame.cores_per_gpu == answer.cores_per_gpu)].iloc[0]
    assert row.gpu_idle == answer.gpu_idle

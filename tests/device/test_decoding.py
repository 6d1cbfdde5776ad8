"""Real training on pictures that the device decodes; torchvision is a stand-in here, the device the CPU."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coresim.device.decoding import jpeg_decoder
from coresim.errors import MissingPartError
from coresim.measure.notes import Prepared
from coresim.workloads.images import EncodedImageWorkload

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the training is torch's")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `decode_jpeg` was asked for; it decodes with Pillow, as the real one does with nvJPEG."""
    import torch

    from coresim.workloads.pictures import read_rgb

    made: list[Any] = []

    def decode_jpeg(parts: list[Any], mode: str, device: Any) -> list[Any]:
        made.append((len(parts), mode, str(device)))
        pixels = [np.asarray(read_rgb(bytes(part.numpy()))).transpose(2, 0, 1) for part in parts]
        return [torch.from_numpy(np.ascontiguousarray(picture)).to(device) for picture in pixels]

    package, io = types.ModuleType("torchvision"), types.ModuleType("torchvision.io")
    io.ImageReadMode = types.SimpleNamespace(RGB="RGB")  # type: ignore[attr-defined]
    io.decode_jpeg = decode_jpeg  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.io", io)
    return made


@pytest.fixture
def encoded(tmp_path: Path) -> Any:
    work = EncodedImageWorkload(tmp_path)
    work.count = 4
    work.make()
    return work.collate([Prepared(work)[index] for index in range(4)])


def test_a_batch_of_files_becomes_a_normalised_batch_of_pictures(calls: list[Any], encoded: Any):
    import torch

    found = jpeg_decoder(torch.device("cpu"))(encoded)
    assert found.shape == (4, 3, 224, 224) and found.dtype == torch.float32
    assert -3.0 < float(found.min()) < 0.0 < float(found.max()) < 3.0
    assert calls == [(4, "RGB", "cpu")]
    assert sum(encoded[1]) == len(encoded[0])


def test_decoding_is_part_of_the_step_and_nothing_is_copied_besides(calls: list[Any], encoded: Any):
    from coresim.validate.training import Training

    training = Training("tiny", "fp32", "cpu", 4, encoded, encoded=True)
    before = len(calls)
    begin, end = training.train(encoded)
    assert training.device.elapsed(begin, end) > 0 and len(calls) == before + 1
    cost = training.cost(seconds=0.2)
    assert cost.copy == () and cost.copy_pinned == () and min(cost.step) > 0
    assert len(calls) > before + len(cost.step)


def test_without_torchvision_it_is_one_line(monkeypatch: pytest.MonkeyPatch):
    import torch

    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingPartError, match="torchvision is not installed"):
        jpeg_decoder(torch.device("cpu"))

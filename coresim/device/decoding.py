"""JPEG files that the device decodes by itself: what is then left of preparing a picture runs there, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coresim.device.models import load_torch
from coresim.errors import MissingPartError
from coresim.workloads.images import crop_box
from coresim.workloads.pictures import DEVIATION, MEAN


def jpeg_decoder(device: Any) -> Callable[[Any], Any]:
    """A function from a batch of `EncodedImageWorkload` (bytes in a row, length of each) to float32 NCHW on ``device``.

    JPEG files are decoded there, by nvJPEG (https://docs.pytorch.org/vision/stable/generated/torchvision.io.decode_jpeg.html:
    encoded tensors on the host give decoded ones on the device), then cropped, resized and normalised.

    Raises:
        MissingPartError: torchvision is not installed.
    """
    torch = load_torch()
    try:
        from torchvision.io import ImageReadMode, decode_jpeg  # noqa: PLC0415 (torchvision is optional and heavy)
    except ImportError:
        raise MissingPartError("decoding on the GPU: torchvision is not installed; install it") from None
    rng = np.random.default_rng(0)
    mean, deviation = (torch.from_numpy(values).to(device).view(1, 3, 1, 1) for values in (MEAN, DEVIATION))

    def cropped(picture: Any) -> Any:
        left, top, width, height = crop_box(picture.shape[2], picture.shape[1], rng)
        part = picture[None, :, top : top + height, left : left + width].float()
        return torch.nn.functional.interpolate(part, size=(224, 224), mode="bilinear", antialias=True)

    def decode(batch: Any) -> Any:
        row, lengths = batch
        parts = list(torch.split(torch.as_tensor(row), [int(length) for length in lengths]))
        pictures = decode_jpeg(parts, mode=ImageReadMode.RGB, device=device)
        return (torch.cat([cropped(picture) for picture in pictures]) / 255.0 - mean) / deviation

    return decode

"""Pictures that cost what photographs cost: textures with the 1/f amplitude spectrum of natural images.

Source: Field 1987, doi:10.1364/JOSAA.4.002379. Decoding cost follows pixels and compressed bytes; sizes and
contrast are the caller's to choose.
"""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np
from PIL import Image

from coresim.workloads.folder import FolderWorkload

SIDE = 1024
CONTRAST = 31.0
CONTRAST_SPREAD = 0.4
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class PictureWorkload(FolderWorkload):
    """Picture files decoded by Pillow to RGB pixels, at full size: no draft mode, as in the usual loaders."""

    patterns: tuple[str, ...] = ("*.jpg",)

    def decode(self, raw: bytes) -> Image.Image:
        """RGB pixels."""
        return read_rgb(raw)


class Painter:
    """Draws pictures of any size up to ``side`` pixels; the same seed draws the same ones in the same order."""

    def __init__(self, rng: np.random.Generator, side: int = SIDE) -> None:
        self.rng, self.side, self._drawn = rng, side, 0
        self._textures = [_texture(rng, side) for _ in range(2)]

    def draw(self, width: int, height: int) -> Image.Image:
        """A picture of ``width`` x ``height`` pixels, both at most ``side``."""
        texture = self._textures[self._drawn % 2]
        self._drawn += 1
        left, top = self.rng.integers(self.side - width + 1), self.rng.integers(self.side - height + 1)
        scale = np.float32(self.rng.lognormal(math.log(CONTRAST), CONTRAST_SPREAD))
        pixels = 128.0 + texture[top : top + height, left : left + width] * scale
        return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def read_rgb(raw: bytes) -> Image.Image:
    """A picture file's bytes as RGB pixels."""
    return Image.open(BytesIO(raw)).convert("RGB")


def normalised(pixels: np.ndarray) -> np.ndarray:
    """8-bit RGB pixels (height, width, 3) as a float32 array (3, height, width), normalised as for ImageNet."""
    values = (pixels.astype(np.float32) / np.float32(255.0) - MEAN) / DEVIATION
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def _texture(rng: np.random.Generator, side: int) -> np.ndarray:
    """An RGB texture of unit deviation with a 1/f amplitude spectrum; its channels are nearly grey, as photos' are."""
    across, down = np.fft.rfftfreq(side), np.fft.fftfreq(side)[:, None]
    falloff = 1.0 / np.maximum(np.hypot(across, down), 1.0 / side)

    def plane() -> np.ndarray:
        field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((side, side))) * falloff)
        return np.asarray((field / field.std()).astype(np.float32))

    grey = plane()
    return np.stack([grey + 0.3 * plane() for _ in range(3)], axis=-1)

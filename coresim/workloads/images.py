"""The default workload: training on ImageNet-class JPEG files, with Pillow and numpy only.

The files are made on the spot, so that nothing is downloaded. What they imitate: the ImageNet (ILSVRC 2012)
training set, 1,281,167 JPEG files in 138 GB, hence 108 kB per file, with 500 x 375 the typical size and
0.18 million pixels on average (469 x 387) (Russakovsky et al. 2015, doi:10.1007/s11263-015-0816-y). Decoding cost
follows pixels and compressed bytes, so both are matched: textures have the 1/f amplitude spectrum of natural
images (Field 1987, doi:10.1364/JOSAA.4.002379), and contrast and quality are spread until bytes per pixel are
ImageNet's. A test asserts the mean bytes, the mean pixels and the spread of a generated set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from coresim.workloads.base import Workload

FILES = 96
SIDE = 1024
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class ImageWorkload(Workload):
    """Read a JPEG file, decode it to RGB, then random resized crop to 224, flip, normalise to float32 CHW.

    The transform's parameters are those of the usual ResNet recipe: 8 to 100 % of the area, aspect 3/4 to 4/3,
    bilinear. Any folder of JPEG files will do; `make` fills an empty one.
    """

    name = "imagenet-like JPEG, 224 px"
    batch_size = 256

    @cached_property
    def _paths(self) -> list[Path]:
        return sorted(path for pattern in ("*.jpg", "*.jpeg", "*.JPEG") for path in self.folder.rglob(pattern))

    def make(self) -> None:
        """Write the generated files, always the same ones, unless the folder holds JPEG files already."""
        if not self._paths:
            make_images(self.folder, FILES)
            del self._paths

    def __len__(self) -> int:
        """The number of files."""
        return len(self._paths)

    def files(self) -> Sequence[Path]:
        """The JPEG files."""
        return self._paths

    def fetch(self, index: int) -> bytes:
        """The file's bytes."""
        return self._paths[index].read_bytes()

    def decode(self, raw: bytes) -> Image.Image:
        """RGB pixels, at full size: no draft mode, as in the usual loaders."""
        return Image.open(BytesIO(raw)).convert("RGB")

    def transform(self, x: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """Crop, resize, flip, normalise: a float32 array of shape (3, 224, 224)."""
        left, top, width, height = crop_box(x.width, x.height, rng)
        box = (left, top, left + width, top + height)
        pixels = np.asarray(x.resize((224, 224), Image.Resampling.BILINEAR, box=box))
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        values = (pixels.astype(np.float32) / np.float32(255.0) - MEAN) / DEVIATION
        return np.ascontiguousarray(values.transpose(2, 0, 1))


def crop_box(width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A random crop (left, top, width, height) as torchvision's ``RandomResizedCrop`` draws it."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        aspect = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            return int(rng.integers(width - across + 1)), int(rng.integers(height - down + 1)), across, down
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def make_images(folder: Path, count: int, seed: int = 2012) -> None:
    """Write ``count`` JPEG files into ``folder``; the same seed gives the same pixels."""
    rng = np.random.default_rng(seed)
    textures = [_texture(rng) for _ in range(2)]
    for index in range(count):
        width, height = _size(rng)
        left, top = rng.integers(SIDE - width + 1), rng.integers(SIDE - height + 1)
        patch = textures[index % 2][top : top + height, left : left + width]
        scaled = 128.0 + patch * np.float32(rng.lognormal(math.log(31.0), 0.4))
        picture = Image.fromarray(np.clip(scaled, 0, 255).astype(np.uint8))
        picture.save(folder / f"{index:04d}.jpg", quality=int(rng.integers(87, 97)))


def _size(rng: np.random.Generator) -> tuple[int, int]:
    """Width and height in pixels: two thirds are 500 on the long side, the rest spread widely."""
    long_side = 500 if rng.random() < 0.67 else int(np.clip(rng.lognormal(math.log(400), 0.45), 100, SIDE))
    short_side = round(long_side * float(rng.choice([0.667, 0.75, 0.75, 0.75, 1.0])))
    return (long_side, short_side) if rng.random() < 0.75 else (short_side, long_side)


def _texture(rng: np.random.Generator) -> np.ndarray:
    """An RGB texture of unit deviation with a 1/f amplitude spectrum; its channels are nearly grey, as photos' are."""
    across, down = np.fft.rfftfreq(SIDE), np.fft.fftfreq(SIDE)[:, None]
    falloff = 1.0 / np.maximum(np.hypot(across, down), 1.0 / SIDE)

    def plane() -> np.ndarray:
        field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((SIDE, SIDE))) * falloff)
        scaled: np.ndarray = (field / field.std()).astype(np.float32)
        return scaled

    grey = plane()
    return np.stack([grey + 0.3 * plane() for _ in range(3)], axis=-1)

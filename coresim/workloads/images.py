"""The default workload: training on ImageNet-class JPEG files, with Pillow and numpy only.

The files are made on the spot, so that nothing is downloaded. They imitate the ImageNet (ILSVRC 2012) training set,
1,281,167 JPEG files in 138 GB, hence 108 kB per file, with 500 x 375 the typical size and 0.18 million pixels on
average (469 x 387) (Russakovsky et al. 2015, doi:10.1007/s11263-015-0816-y). Decoding cost follows pixels and
compressed bytes, so both are matched: contrast and quality of the pictures are spread until bytes per pixel are
ImageNet's. A test asserts the mean bytes, the mean pixels and the spread of a generated set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from io import BytesIO

import numpy as np
from PIL import Image

from coresim.workloads.pictures import SIDE, Painter, PictureWorkload, normalised


class ImageWorkload(PictureWorkload):
    """Read a JPEG file, decode it to RGB, then random resized crop to 224, flip, normalise to float32 CHW.

    The transform's parameters are those of the usual ResNet recipe: 8 to 100 % of the area, aspect 3/4 to 4/3,
    bilinear. Any folder of JPEG files will do; `make` fills an empty one.
    """

    name = "imagenet-like JPEG, 224 px"
    batch_size = 256
    patterns: tuple[str, ...] = ("*.jpg", "*.jpeg", "*.JPEG")
    count = 96

    def write(self) -> None:
        """Write the JPEG files."""
        for index, raw in enumerate(make_jpegs(self.count)):
            (self.folder / f"{index:04d}.jpg").write_bytes(raw)

    def transform(self, x: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """Crop, resize, flip, normalise: a float32 array of shape (3, 224, 224)."""
        return normalised(flipped(np.asarray(random_crop(x, rng)), rng))


class EncodedImageWorkload(ImageWorkload):
    """The JPEG files as they are, for a device that decodes them: workers only read and join bytes."""

    name = "imagenet-like JPEG, undecoded"

    def decode(self, raw: bytes) -> np.ndarray:  # type: ignore[override]
        """The bytes as numbers."""
        return np.frombuffer(raw, dtype=np.uint8)

    def transform(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:  # type: ignore[override]
        """Nothing: the device transforms."""
        return x

    def collate(self, samples: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """All bytes in a row, and the length of each file."""
        return np.concatenate(samples), np.array([len(sample) for sample in samples])


class PngWorkload(ImageWorkload):
    """The same kind of pictures as PNG files: no loss, several times the bytes, and inflating in place of JPEG."""

    name = "imagenet-like PNG, 224 px"
    patterns = ("*.png",)
    count = 48

    def write(self) -> None:
        """Write the PNG files."""
        painter = Painter(np.random.default_rng(1996))
        for index in range(self.count):
            painter.draw(*imagenet_size(painter.rng)).save(self.folder / f"{index:04d}.png")


def random_crop(x: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A random part of the picture, resized to 224 x 224 pixels."""
    left, top, width, height = crop_box(x.width, x.height, rng)
    return x.resize((224, 224), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))


def flipped(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The pixels, mirrored left to right half of the time."""
    return pixels[:, ::-1] if rng.random() < 0.5 else pixels


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


def make_jpegs(count: int) -> Iterator[bytes]:
    """The bytes of ``count`` JPEG files, always the same ones."""
    painter = Painter(np.random.default_rng(2012))
    for _ in range(count):
        picture, file = painter.draw(*imagenet_size(painter.rng)), BytesIO()
        picture.save(file, "JPEG", quality=int(painter.rng.integers(87, 97)))
        yield file.getvalue()


def imagenet_size(rng: np.random.Generator) -> tuple[int, int]:
    """Width and height in pixels: two thirds are 500 on the long side, the rest spread widely."""
    long_side = 500 if rng.random() < 0.67 else int(np.clip(rng.lognormal(math.log(400), 0.45), 100, SIDE))
    short_side = round(long_side * float(rng.choice([0.667, 0.75, 0.75, 0.75, 1.0])))
    return (long_side, short_side) if rng.random() < 0.75 else (short_side, long_side)

"""Image jobs with more to do after decoding: strong augmentation, and pictures as large as detectors take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from coresim.workloads.base import padded
from coresim.workloads.folder import FolderWorkload
from coresim.workloads.images import ImageWorkload, flipped, random_crop
from coresim.workloads.pictures import Painter, normalised, read_rgb

Operation = Callable[[Image.Image, float], Image.Image]


def _affine(*rows: float) -> Callable[[Image.Image], Image.Image]:
    return lambda x: x.transform(x.size, Image.Transform.AFFINE, rows)


#: RandAugment's fourteen; the second argument is a magnitude from -1 to 1.
OPERATIONS: tuple[Operation, ...] = (
    lambda x, m: x,
    lambda x, m: x.rotate(30 * m),
    lambda x, m: _affine(1, 0.3 * m, 0, 0, 1, 0)(x),
    lambda x, m: _affine(1, 0, 0, 0.3 * m, 1, 0)(x),
    lambda x, m: _affine(1, 0, 0.45 * m * x.width, 0, 1, 0)(x),
    lambda x, m: _affine(1, 0, 0, 0, 1, 0.45 * m * x.height)(x),
    lambda x, m: ImageOps.autocontrast(x),
    lambda x, m: ImageOps.equalize(x),
    lambda x, m: ImageOps.posterize(x, round(8 - 4 * abs(m))),
    lambda x, m: ImageOps.solarize(x, round(256 * (1 - abs(m)))),
    lambda x, m: ImageEnhance.Color(x).enhance(1 + 0.9 * m),
    lambda x, m: ImageEnhance.Contrast(x).enhance(1 + 0.9 * m),
    lambda x, m: ImageEnhance.Brightness(x).enhance(1 + 0.9 * m),
    lambda x, m: ImageEnhance.Sharpness(x).enhance(1 + 0.9 * m),
)


class HeavyAugmentWorkload(ImageWorkload):
    """The default job with RandAugment (two operations, magnitude 9 of 10) and random erasing on top.

    Sources: Cubuk et al. 2020, doi:10.48550/arXiv.1909.13719; Zhong et al. 2020, doi:10.48550/arXiv.1708.04896.
    """

    name = "imagenet-like JPEG, 224 px, strong augmentation"
    operations, magnitude, erased = 2, 0.9, 0.25

    def transform(self, x: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """Crop, two drawn operations, flip, normalise, erase: a float32 array of shape (3, 224, 224)."""
        picture = random_crop(x, rng)
        for number in rng.integers(len(OPERATIONS), size=self.operations):
            picture = OPERATIONS[number](picture, self.magnitude * float(rng.choice([-1.0, 1.0])))
        values = normalised(flipped(np.asarray(picture), rng))
        if rng.random() < self.erased:
            erase(values, rng)
        return values


def erase(values: np.ndarray, rng: np.random.Generator) -> None:
    """Fill a square of 2 to 33 % of the area with noise, in place."""
    side = round(values.shape[1] * float(np.sqrt(rng.uniform(0.02, 0.33))))
    top, left = rng.integers(values.shape[1] - side + 1, size=2)
    values[:, top : top + side, left : left + side] = rng.standard_normal((len(values), side, side), dtype=np.float32)


class Scene(NamedTuple):
    """A picture (as bytes, pixels or values) with its boxes: (n, 4) float32, left, top, right, bottom in pixels."""

    picture: Any
    boxes: np.ndarray


class DetectionWorkload(FolderWorkload):
    """Pictures of 640 x 480 with boxes, resized to 800 on the short side, flipped, padded to a common size.

    Like COCO: 118,287 training files in 18 GB (cocodataset.org), hence 152 kB each, and 7.7 objects per picture
    (Lin et al. 2014, doi:10.1007/978-3-319-10602-1_48). The size and two pictures per accelerator are the usual
    settings of Faster R-CNN (Lin et al. 2017, doi:10.48550/arXiv.1612.03144).
    """

    name = "detection, 640 x 480 to 800 px"
    batch_size = 2
    patterns = ("*.jpg",)
    count = 48
    short_side, objects = 800, 7.7

    def write(self) -> None:
        """Write the files, one in four upright."""
        painter = Painter(np.random.default_rng(2014))
        for index in range(self.count):
            quality = int(painter.rng.integers(84, 95))
            picture = painter.draw(480, 640) if index % 4 == 3 else painter.draw(640, 480)
            picture.save(self.folder / f"{index:04d}.jpg", quality=quality)

    def fetch(self, index: int) -> Scene:
        """The file's bytes, and its boxes, which a training job holds in memory."""
        rng = np.random.default_rng(index)
        corners = rng.uniform(0, 480, (1 + rng.poisson(self.objects - 1), 2, 2)).astype(np.float32)
        return Scene(super().fetch(index), np.sort(corners, axis=1).reshape(-1, 4))

    def decode(self, raw: Scene) -> Scene:
        """RGB pixels."""
        return Scene(read_rgb(raw.picture), raw.boxes)

    def transform(self, x: Scene, rng: np.random.Generator) -> Scene:
        """Resize, flip with the boxes, normalise: a float32 array of shape (3, height, width)."""
        picture: Image.Image = x.picture
        scale = self.short_side / min(picture.size)
        picture = picture.resize((round(picture.width * scale), round(picture.height * scale)))
        boxes = x.boxes * np.float32(scale)
        pixels = np.asarray(picture)
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
            boxes[:, [0, 2]] = picture.width - boxes[:, [2, 0]]
        return Scene(normalised(pixels), boxes)

    def collate(self, samples: list[Scene]) -> tuple[np.ndarray, np.ndarray]:
        """Pictures padded to the largest height and width, and boxes to the largest number, with zeros."""
        return padded([scene.picture for scene in samples]), padded([scene.boxes for scene in samples])

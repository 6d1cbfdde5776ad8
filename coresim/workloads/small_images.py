"""Small pictures: cheap alone, with a few large ones among them, or behind a slow read."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from PIL import Image

from coresim.workloads.pictures import Painter, PictureWorkload, normalised

SMALL_SIDE = 256
#: Pixels on a side of the small pictures, and of what is cropped from them.
LEAST, MOST = 100, 160
CROP = 96


class LightJpegWorkload(PictureWorkload):
    """Read a JPEG thumbnail of 100 to 160 px, decode it, crop the middle 96 x 96, normalise."""

    name = "JPEG thumbnails, 96 px"
    batch_size = 128
    count = 256

    def write(self) -> None:
        """Write the files."""
        painter = Painter(np.random.default_rng(1), SMALL_SIDE)
        for index in range(self.count):
            width, height = painter.rng.integers(LEAST, MOST + 1, 2)
            painter.draw(int(width), int(height)).save(self.folder / f"{index:04d}.jpg", quality=85)

    def transform(self, x: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """Crop and normalise: a float32 array of shape (3, 96, 96)."""
        left, top = (x.width - CROP) // 2, (x.height - CROP) // 2
        return normalised(np.asarray(x.crop((left, top, left + CROP, top + CROP))))


class HeavyTailedWorkload(PictureWorkload):
    """Thumbnails, and among each 25 one large picture, which costs 10 to 30 times as much; all are resized to 64 px.

    The order of the files has no pattern, and the large ones' pixels are spread evenly in the logarithm.
    """

    name = "JPEG thumbnails with large pictures among them"
    batch_size = 32
    count = 300
    one_large_in = 25
    #: Pixels of a thumbnail, and of the large ones.
    small, large = 100 * 75, (260_000, 780_000)

    def write(self) -> None:
        """Write the files."""
        painter = Painter(np.random.default_rng(25))
        names = painter.rng.permutation(self.count)
        for place, pixels in enumerate(self.pixels()):
            height = math.sqrt(pixels * 3 / 4)
            picture = painter.draw(round(height * 4 / 3), round(height))
            picture.save(self.folder / f"{names[place]:04d}.jpg", quality=85)

    def pixels(self) -> list[float]:
        """Pixels of each file, the large ones first."""
        large = self.count // self.one_large_in
        return [*np.geomspace(*self.large, large), *[float(self.small)] * (self.count - large)]

    def transform(self, x: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """Resize and normalise: a float32 array of shape (3, 64, 64)."""
        return normalised(np.asarray(x.resize((64, 64), Image.Resampling.BILINEAR)))


class WaitingWorkload(LightJpegWorkload):
    """Thumbnails behind a network that is not there: a STAND-IN which sleeps before it reads the local file.

    The sleeps are drawn once per file from a lognormal distribution. Its median, 8 ms, and its spread are chosen,
    not measured: enough for waiting to outweigh the work some fifteenfold. A sleep holds no core, as a read from a
    network does; what a real network stack costs the cores is not in it.
    """

    name = "JPEG thumbnails behind a simulated network"
    batch_size = 32
    median, spread, longest = 8e-3, 0.5, 0.1

    def latency(self, index: int) -> float:
        """Seconds that the read of one file waits, the same each time."""
        drawn = np.random.default_rng(index).lognormal(math.log(self.median), self.spread)
        return min(self.longest, float(drawn))

    def fetch(self, index: int) -> Any:
        """Wait, then the file's bytes."""
        time.sleep(self.latency(index))
        return super().fetch(index)

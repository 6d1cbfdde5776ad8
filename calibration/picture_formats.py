"""The same pictures in several formats, one file per sample: what each costs to read and to decode.

All hold the pixels that the JPEG files of the default job decode to, and all end in its transform. To measure one:
``coresim recommend --dataset calibration/picture_formats.py:NpyImages``.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from coresim.workloads.images import ImageWorkload, make_jpegs
from coresim.workloads.packages import load_package
from coresim.workloads.pictures import read_rgb


class JpegImages(ImageWorkload):
    """As they are."""

    name = "pictures as JPEG"
    batch_size = 64
    patterns = ("*.jpg",)
    suffix = ".jpg"
    count = 48

    def write(self) -> None:
        """Write the files."""
        for index, raw in enumerate(make_jpegs(self.count)):
            (self.folder / f"{index:04d}{self.suffix}").write_bytes(self.stored(raw))

    def stored(self, jpeg: bytes) -> bytes:
        """The file's bytes, from those of the JPEG file."""
        return jpeg


class PngImages(JpegImages):
    """PNG, at Pillow's default level of compression."""

    name = "pictures as PNG"
    patterns = ("*.png",)
    suffix = ".png"
    pillow_format = "PNG"

    def stored(self, jpeg: bytes) -> bytes:
        """The file's bytes, by Pillow."""
        file = BytesIO()
        read_rgb(jpeg).save(file, self.pillow_format)
        return file.getvalue()


class BmpImages(PngImages):
    """BMP: pixels behind a header."""

    name = "pictures as BMP"
    patterns = ("*.bmp",)
    suffix = ".bmp"
    pillow_format = "BMP"


class NpyImages(JpegImages):
    """Arrays as they lie in memory."""

    name = "pictures as npy"
    patterns = ("*.npy",)
    suffix = ".npy"

    def stored(self, jpeg: bytes) -> bytes:
        """The file's bytes, by numpy."""
        file = BytesIO()
        np.save(file, np.asarray(read_rgb(jpeg)))
        return file.getvalue()

    def decode(self, raw: bytes) -> Image.Image:
        """RGB pixels."""
        return Image.fromarray(np.load(BytesIO(raw)))


class NpzImages(JpegImages):
    """Arrays, deflated."""

    name = "pictures as npz"
    patterns = ("*.npz",)
    suffix = ".npz"

    def stored(self, jpeg: bytes) -> bytes:
        """The file's bytes, by numpy."""
        file = BytesIO()
        np.savez_compressed(file, pixels=np.asarray(read_rgb(jpeg)))
        return file.getvalue()

    def decode(self, raw: bytes) -> Image.Image:
        """RGB pixels."""
        with np.load(BytesIO(raw)) as file:
            return Image.fromarray(file["pixels"])


class Hdf5Images(JpegImages):
    """HDF5 with one dataset, neither chunked nor compressed; needs the package ``h5py``."""

    name = "pictures as HDF5"
    patterns = ("*.h5",)
    suffix = ".h5"

    def stored(self, jpeg: bytes) -> bytes:
        """The file's bytes, by h5py."""
        file = BytesIO()
        with load_package("h5py", "HDF5").File(file, "w") as store:
            store["pixels"] = np.asarray(read_rgb(jpeg))
        return file.getvalue()

    def decode(self, raw: bytes) -> Image.Image:
        """RGB pixels."""
        with load_package("h5py", "HDF5").File(BytesIO(raw), "r") as store:
            return Image.fromarray(store["pixels"][:])

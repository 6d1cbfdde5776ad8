"""Patches of 3-D volumes, as in medical imaging, from three formats: npy, npz and HDF5.

A patch of 96 x 96 x 96 voxels is cut out of a scan of 128 x 160 x 128, 16 bits a voxel. What differs is what must
be read and unpacked for it: npy is mapped, so that only the patch is read; npz is inflated as a whole; HDF5 is kept
in compressed chunks, of which those that the patch touches are inflated. Patch size and two patches per batch are
of the order of nnU-Net's for such scans (Isensee et al. 2021, doi:10.1038/s41592-020-01008-z).
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coresim.workloads.folder import FolderWorkload
from coresim.workloads.packages import load_package

SHAPE = (128, 160, 128)
SIDE = 96
CHUNK = (32, 32, 32)
PATCHES = 24

Box = tuple[slice, ...]


class Stored(NamedTuple):
    """What was read for a patch, and where in it the patch is."""

    raw: Any
    box: Box


class NpyVolumeWorkload(FolderWorkload):
    """Copy a patch through a memory map, convert to float32, flip, scale, add noise."""

    name = "3-D patches from npy"
    batch_size = 2
    patterns = ("*.npy",)
    count = 10

    def write(self) -> None:
        """Write the scans."""
        for index, scan in enumerate(scans(self.count)):
            self.write_one(self.folder / f"{index:02d}{self.patterns[0][1:]}", scan)

    def write_one(self, path: Path, scan: np.ndarray) -> None:
        """Write a scan to a file."""
        np.save(path, scan)

    def __len__(self) -> int:
        """Each scan serves for many patches."""
        return PATCHES * super().__len__()

    def bytes_per_sample(self) -> float | None:
        """Bytes of a patch; its neighbourhood comes along where a page or a disk holds more."""
        return float(SIDE**3 * 2)

    def fetch(self, index: int) -> Stored:
        """The patch's voxels."""
        box = box_of(index)
        mapped = np.load(self._path(index), mmap_mode="r")
        return Stored(np.array(mapped[box]), box)

    def decode(self, raw: Stored) -> np.ndarray:
        """The patch as float32."""
        return np.asarray(raw.raw.astype(np.float32))

    def transform(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Mean 0 and deviation 1, flips, contrast, noise: float32, (1, 96, 96, 96)."""
        values = (x - x.mean()) / (x.std() + np.float32(1e-6))
        flips = tuple(axis for axis in range(3) if rng.random() < 0.5)
        values = np.flip(values, flips) * np.float32(rng.uniform(0.75, 1.25))
        values += np.float32(0.1) * rng.standard_normal(values.shape, dtype=np.float32)
        return np.asarray(values[np.newaxis])

    def _path(self, index: int) -> Path:
        return self._paths[index % len(self._paths)]


class NpzVolumeWorkload(NpyVolumeWorkload):
    """Read a compressed file, inflate the whole scan, cut out a patch, then as for npy."""

    name = "3-D patches from npz"
    patterns = ("*.npz",)

    def write_one(self, path: Path, scan: np.ndarray) -> None:
        """Write a scan to a file."""
        np.savez_compressed(path, scan=scan)

    bytes_per_sample = FolderWorkload.bytes_per_sample  # all of a file is read

    def fetch(self, index: int) -> Stored:
        """The file's bytes."""
        return Stored(self._path(index).read_bytes(), box_of(index))

    def decode(self, raw: Stored) -> np.ndarray:
        """The patch as float32, from the whole scan."""
        with np.load(BytesIO(raw.raw)) as file:
            return np.asarray(file["scan"][raw.box].astype(np.float32))


class Hdf5VolumeWorkload(NpzVolumeWorkload):
    """Read a file of gzip-compressed chunks of 32 x 32 x 32, inflate those that hold the patch, then as for npy.

    The file is read whole, so that reading and inflating are apart; h5py itself would read the chunks needed.
    """

    name = "3-D patches from HDF5"
    patterns = ("*.h5",)

    def write_one(self, path: Path, scan: np.ndarray) -> None:
        """Write a scan to a file."""
        with load_package("h5py", "HDF5").File(path, "w") as file:
            file.create_dataset("scan", data=scan, chunks=CHUNK, compression="gzip")

    def decode(self, raw: Stored) -> np.ndarray:
        """The patch as float32, from the chunks that hold it."""
        with load_package("h5py", "HDF5").File(BytesIO(raw.raw), "r") as file:
            return np.asarray(file["scan"][raw.box].astype(np.float32))


def box_of(index: int) -> Box:
    """Where the patch of a sample is: anywhere in the scan, the same each time."""
    rng = np.random.default_rng(index)
    corner = [int(rng.integers(length - SIDE + 1)) for length in SHAPE]
    return tuple(slice(begin, begin + SIDE) for begin in corner)


def scans(count: int) -> list[np.ndarray]:
    """Smooth fields with a scanner's noise: int16, `SHAPE`; the same ones each time."""
    rng = np.random.default_rng(3)
    field = np.fft.rfftn(rng.standard_normal(SHAPE, dtype=np.float32))
    frequencies = np.meshgrid(*(np.fft.fftfreq(n) for n in SHAPE[:2]), np.fft.rfftfreq(SHAPE[2]), indexing="ij")
    smooth = np.fft.irfftn(field / (sum(f**2 for f in frequencies) + 1e-4), SHAPE, axes=(0, 1, 2))
    smooth *= 400 / smooth.std()
    noise = rng.normal(0, 12, SHAPE)
    return [(np.roll(smooth, 11 * n, axis=0) + np.roll(noise, 7 * n, axis=1)).astype(np.int16) for n in range(count)]

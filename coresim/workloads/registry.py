"""The built-in workloads by name: plain data, so that listing them imports none of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from coresim.errors import InputError, did_you_mean
from coresim.workloads.named import load_object


class Entry(NamedTuple):
    """A built-in workload."""

    place: str  # ``module:Class`` in this package
    purpose: str
    needs: str = ""  # the optional package that it cannot do without


class ListedWorkload(NamedTuple):
    """The row of a workload in a list: its name, samples per batch, steps in order, purpose, optional package."""

    name: str
    batch_size: int
    steps: tuple[str, ...]
    purpose: str
    needs: str


PACKAGE, DEFAULT = "coresim.workloads", "images"

WORKLOADS = {
    "images": Entry(
        "images:ImageWorkload", "ImageNet-like JPEG, random crop and flip: the usual recipe of image classification"
    ),
    "images-encoded": Entry(
        "images:EncodedImageWorkload", "the JPEG files undecoded: what is left where the GPU decodes"
    ),
    "images-heavy": Entry(
        "augmented:HeavyAugmentWorkload", "the same with RandAugment and erasing: heavy augmentation"
    ),
    "detection": Entry(
        "augmented:DetectionWorkload", "640 x 480 pictures with boxes, resized to 800 px: large samples"
    ),
    "png": Entry("images:PngWorkload", "the pictures of images as PNG: another decoder, more bytes"),
    "jpeg-light": Entry("small_images:LightJpegWorkload", "JPEG thumbnails, centre crop: light decoding"),
    "heavy-tailed": Entry(
        "small_images:HeavyTailedWorkload",
        "one sample in 25 costs 10 to 30 times the others: what bursts and delivery in order cost",
    ),
    "io-wait": Entry(
        "small_images:WaitingWorkload", "most of the time waits without a core: a stand-in for a network, which sleeps"
    ),
    "slow-reads": Entry(
        "waiting:SlowReadsWorkload",
        "hardly anything but waiting, with a heavy tail: a stand-in for a slow store, which sleeps",
    ),
    "audio-wav": Entry("audio:WavWorkload", "speech from WAV to log-mel spectrograms: no decoding"),
    "audio-flac": Entry("audio:FlacWorkload", "speech from FLAC to log-mel spectrograms", "soundfile"),
    "text": Entry("text:TokenWorkload", "documents to WordPiece tokens, in pure Python"),
    "volumes-npy": Entry("volumes:NpyVolumeWorkload", "3-D patches through a memory map"),
    "volumes-npz": Entry("volumes:NpzVolumeWorkload", "3-D patches, the whole scan inflated"),
    "volumes-hdf5": Entry("volumes:Hdf5VolumeWorkload", "3-D patches from compressed chunks", "h5py"),
    "tabular": Entry("arrays:TabularWorkload", "table rows gathered 512 at a time"),
    "memory-bound": Entry(
        "arrays:MemoryBoundWorkload", "table slabs beyond the caches: cores that fight for memory bandwidth"
    ),
    "python-bound": Entry(
        "text:PythonBoundWorkload", "log lines parsed and hashed in pure Python, which holds the interpreter's lock"
    ),
    "tiny": Entry("arrays:TinyWorkload", "one table row per sample: the cost of the loader itself"),
    "tensors": Entry("arrays:TensorWorkload", "prepared tensors of 1 MiB: the cost of handing batches over"),
}


def target_of(name: str) -> str:
    """The class of a built-in workload, as ``package.module:Class``.

    Raises:
        InputError: no workload has that name.
    """
    if name not in WORKLOADS:
        hint = did_you_mean(name, WORKLOADS)
        raise InputError(f"workload {name!r} is not known; use one of {', '.join(WORKLOADS)}, or a dataset{hint}")
    return f"{PACKAGE}.{WORKLOADS[name].place}"


def listing() -> list[ListedWorkload]:
    """All built-in workloads in order; their modules are imported, their optional packages are not."""
    found = []
    for name, entry in WORKLOADS.items():
        workload = load_object(target_of(name), "workload")(Path())
        steps = (*(step.name for step in workload.steps()), "collate")
        found.append(ListedWorkload(name, workload.batch_size, steps, entry.purpose, entry.needs))
    return found

"""The built-in workloads by name: plain data, so that listing them imports none of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from coresim.errors import InputError, did_you_mean
from coresim.workloads.named import load_object


class Entry(NamedTuple):
    """A built-in workload.

    Attributes:
        target: ``package.module:Class``.
        purpose: what it is for.
        needs: the optional package that it cannot do without, or nothing.
    """

    target: str
    purpose: str
    needs: str = ""


class ListedWorkload(NamedTuple):
    """What a list says of a workload: its name, samples per batch, steps in order, purpose, optional package."""

    name: str
    batch_size: int
    steps: tuple[str, ...]
    purpose: str
    needs: str


DEFAULT = "images"

WORKLOADS = {
    "images": Entry(
        "coresim.workloads.images:ImageWorkload",
        "ImageNet-like JPEG, random crop and flip: the usual recipe of image classification",
    ),
    "images-encoded": Entry(
        "coresim.workloads.images:EncodedImageWorkload", "the JPEG files undecoded: what is left where the GPU decodes"
    ),
    "images-heavy": Entry(
        "coresim.workloads.augmented:HeavyAugmentWorkload", "the same with RandAugment and erasing: heavy augmentation"
    ),
    "detection": Entry(
        "coresim.workloads.augmented:DetectionWorkload",
        "640 x 480 pictures with boxes, resized to 800 px: large samples",
    ),
    "png": Entry("coresim.workloads.images:PngWorkload", "the pictures of images as PNG: another decoder, more bytes"),
    "jpeg-light": Entry(
        "coresim.workloads.small_images:LightJpegWorkload", "JPEG thumbnails, centre crop: light decoding"
    ),
    "heavy-tailed": Entry(
        "coresim.workloads.small_images:HeavyTailedWorkload",
        "one sample in 25 costs 10 to 30 times the others: what bursts and delivery in order cost",
    ),
    "io-wait": Entry(
        "coresim.workloads.small_images:WaitingWorkload",
        "most of the time waits without a core: a stand-in for a network, which sleeps",
    ),
    "slow-reads": Entry(
        "coresim.workloads.waiting:SlowReadsWorkload",
        "hardly anything but waiting, with a heavy tail: a stand-in for a slow store, which sleeps",
    ),
    "audio-wav": Entry("coresim.workloads.audio:WavWorkload", "speech from WAV to log-mel spectrograms: no decoding"),
    "audio-flac": Entry(
        "coresim.workloads.audio:FlacWorkload", "speech from FLAC to log-mel spectrograms", "soundfile"
    ),
    "text": Entry("coresim.workloads.text:TokenWorkload", "documents to WordPiece tokens, in pure Python"),
    "volumes-npy": Entry("coresim.workloads.volumes:NpyVolumeWorkload", "3-D patches through a memory map"),
    "volumes-npz": Entry("coresim.workloads.volumes:NpzVolumeWorkload", "3-D patches, the whole scan inflated"),
    "volumes-hdf5": Entry("coresim.workloads.volumes:Hdf5VolumeWorkload", "3-D patches from compressed chunks", "h5py"),
    "tabular": Entry("coresim.workloads.arrays:TabularWorkload", "table rows gathered 512 at a time"),
    "memory-bound": Entry(
        "coresim.workloads.arrays:MemoryBoundWorkload",
        "table slabs beyond the caches: cores that fight for memory bandwidth",
    ),
    "python-bound": Entry(
        "coresim.workloads.text:PythonBoundWorkload",
        "log lines parsed and hashed in pure Python, which holds the interpreter's lock",
    ),
    "tiny": Entry("coresim.workloads.arrays:TinyWorkload", "one table row per sample: the cost of the loader itself"),
    "tensors": Entry(
        "coresim.workloads.arrays:TensorWorkload", "prepared tensors of 1 MiB: the cost of handing batches over"
    ),
}


def target_of(name: str) -> str:
    """The class of a built-in workload, as ``package.module:Class``.

    Raises:
        InputError: no workload has that name.
    """
    if name not in WORKLOADS:
        hint = did_you_mean(name, WORKLOADS)
        raise InputError(f"workload {name!r} is not known; use one of {', '.join(WORKLOADS)}, or a dataset{hint}")
    return WORKLOADS[name].target


def listing() -> list[ListedWorkload]:
    """All built-in workloads in order; their modules are imported, their optional packages are not."""
    found = []
    for name, entry in WORKLOADS.items():
        workload = load_object(entry.target, "workload")(Path())
        steps = (*(step.name for step in workload.steps()), "collate")
        found.append(ListedWorkload(name, workload.batch_size, steps, entry.purpose, entry.needs))
    return found

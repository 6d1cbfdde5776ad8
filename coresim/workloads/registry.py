"""The built-in workloads by name: plain data, so that listing them imports none of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from coresim.errors import InputError
from coresim.workloads.base import load_object


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


class Listing(NamedTuple):
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
        raise InputError(f"workload {name!r} is not known; use one of {', '.join(WORKLOADS)}, or a dataset")
    return WORKLOADS[name].target


def listing() -> list[Listing]:
    """All built-in workloads in order; their modules are imported, their optional packages are not."""
    return [_listed(name, entry) for name, entry in WORKLOADS.items()]


def _listed(name: str, entry: Entry) -> Listing:
    workload = load_object(entry.target, "workload")(Path())
    steps = (*(step.name for step in workload.steps()), "collate")
    return Listing(name, workload.batch_size, steps, entry.purpose, entry.needs)

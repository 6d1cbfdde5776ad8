"""A profile's tables for another batch size than the one it was measured with.

* *Step.* In proportion to the batch, with a standard uncertainty of 5 % for each doubling or halving, as
  `coresim.model.catalogue` scales its records: a small batch leaves a GPU less busy. The same on the CPU.
* *Collating and copying* move every byte once: in proportion.
* *Receiving and sending* have parts that do not grow with the batch: receiving as its own rows say
  (``transport.fixed``, ``transport.per_tensor``, ``transport.per_byte``), sending and what was not measured as
  `coresim.model.handover` has it.
* What a step costs to launch, and a worker to start, does not depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coresim.model.handover import recorded_handover, recorded_sending, recorded_sending_seconds
from coresim.model.overrides import given
from coresim.model.service import read_service

if TYPE_CHECKING:
    from coresim.model.profile import Profile

KEY = "workload.batch_size"
#: Relative standard uncertainty of a step's time for each doubling or halving of its batch.
PER_DOUBLING = 0.05


def asked_batch(profile: Profile, settings: Sequence[str]) -> int | None:
    """Another batch size than the profile's that settings ask for; None: they ask for none (or for no whole number)."""
    value = given(settings, KEY)
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if whole and value != profile.batch_size else None


def rebatched(tables: dict[str, Any], profile: Profile, batch: int) -> dict[str, Any]:
    """The tables with every time of a batch as it is for ``batch`` samples."""
    ratio = batch / profile.batch_size
    size = round(profile.bytes_per_batch * ratio)
    recorded = {"consumer": recorded_handover(size, profile.arrays_per_batch), "send": recorded_sending(size)}
    workload, device = dict(tables["workload"]), dict(tables["accelerator"])
    for name in ("collate", "copy"):
        if name in workload:
            workload[name] = _scaled(workload[name], name, ratio)
    for name in ("consumer", "send"):
        if name in workload and profile.provenance.torch_version is None:
            workload[name] = recorded[name]
        elif name in workload:
            workload[name] = _scaled(workload[name], name, _growth(name, profile, ratio))
    for name in ("step", "cpu_step"):
        if name in device:
            device[name] = _scaled(device[name], name, ratio, PER_DOUBLING * abs(math.log2(ratio)))
    if "batch_bytes" in workload:
        workload["batch_bytes"] = workload["batch_bytes"] * ratio
    workload["batch_size"] = batch
    return {**tables, "workload": workload, "accelerator": device}


def _scaled(table: Any, name: str, factor: float, spread: float = 0.0) -> dict[str, Any]:
    return read_service(table, name).scaled(factor, spread).to_table()


def _growth(name: str, profile: Profile, ratio: float) -> float:
    """By what a batch of ``ratio`` times the samples takes longer to receive or to send."""
    size = float(profile.bytes_per_batch)
    if name == "send":
        return recorded_sending_seconds(size * ratio) / recorded_sending_seconds(size)
    fixed, tensor, byte = (profile.get(f"transport.{part}") for part in ("fixed", "per_tensor", "per_byte"))
    if fixed is None or tensor is None or byte is None:
        return ratio
    still, moving = fixed.mean + tensor.mean * profile.arrays_per_batch, byte.mean * size
    return (still + ratio * moving) / (still + moving)

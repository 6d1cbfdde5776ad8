"""A profile's tables for another batch size than the one it was measured with.

* *Step.* In proportion to the batch, with a standard uncertainty of 5 % for each doubling or halving, as
  `coresim.model.catalogue` scales its records: a small batch leaves a GPU less busy. The same on the CPU.
* *Collating, pinning and copying* move every byte once: in proportion.
* A profile's loader may have run with smaller batches than its step and its copies: each is taken from its own.
* *Sending, receiving and waiting for the hand-over* have a part that does not depend on the size of the batch, and how
  large it is was not measured: the middle, in ratio, between not growing at all and growing in proportion. Both ends
  are taken as two standard uncertainties away.
* What a step costs to launch, and a worker to start, does not depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coresim.model.overrides import given
from coresim.model.service import read_service

KEY = "workload.batch_size"
#: Relative standard uncertainty of a step's time for each doubling or halving of its batch.
PER_DOUBLING = 0.05
_MOVED, _PARTLY = ("collate", "pin"), ("send", "consumer")


def asked_batch(own: int, settings: Sequence[str]) -> int | None:
    """Another batch size than ``own`` that settings ask for; None: they ask for none (or for no whole number)."""
    value = given(settings, KEY)
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if whole and value != own else None


def step_spread(own: int, batch: int) -> float:
    """Relative standard uncertainty of the step of a batch that is taken in proportion from another's."""
    return PER_DOUBLING * abs(math.log2(batch / own))


def rebatched(tables: dict[str, Any], own: int, batch: int, ran: int) -> dict[str, Any]:
    """The tables with every time of a batch as it is for one of ``batch`` samples.

    The loader's times are of batches of ``ran`` samples, and the step, copies and bytes of batches of ``own``.
    """
    ratio, moved = batch / own, batch / ran
    workload, device = dict(tables["workload"]), dict(tables["accelerator"])
    middle, spread = math.sqrt(moved), abs(math.log(moved)) / 4
    workload |= {name: _scaled(workload[name], name, moved) for name in _MOVED if name in workload}
    workload |= {name: _scaled(workload[name], name, middle, spread) for name in _PARTLY if name in workload}
    if "handover" in workload:
        states = workload["handover"].items()
        workload["handover"] = {state: _scaled(table, state, middle, spread) for state, table in states}
    steps = [name for name in ("step", "cpu_step") if name in device]
    device |= {name: _scaled(device[name], name, ratio, step_spread(own, batch)) for name in steps}
    if "copy" in workload:
        workload["copy"] = _scaled(workload["copy"], "copy", ratio)
    if "batch_bytes" in workload:
        workload["batch_bytes"] = workload["batch_bytes"] * ratio
    workload["batch_size"] = batch
    return {**tables, "workload": workload, "accelerator": device}


def _scaled(table: Any, name: str, factor: float, spread: float = 0.0) -> dict[str, Any]:
    return read_service(table, name).scaled(factor, spread).to_table()

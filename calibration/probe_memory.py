"""How often a trainer that prepares gets new memory for a batch: ``python calibration/probe_memory.py``.

It needs torch and takes half a minute. A process without workers joins batches of 16 MiB, as a trial without overlap
does. The C library keeps the memory of a batch for the next one, or gives it back to the system and takes new memory,
whose pages the system must clear. "Memory as usual" leaves that to the library; "memory is kept" tells it never to
give memory back (mallopt(3)). ``new`` is the share of batches with page faults for at least half of their pages.
``batch_ms`` and ``new_ms`` are the CPU times to join a batch: of all of them, and of those with new memory.
"""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import tempfile
from contextlib import closing
from functools import partial
from typing import Any

import torch
from probing import save

from coresim.measure.campaign import make_data
from coresim.measure.forked import run_forked
from coresim.measure.rig import Rig
from coresim.measure.subject import Layout
from coresim.measure.trial import run_trial
from coresim.workloads.base import PAGE
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

BATCH, PAGES = 16, 16 * 2**20 // PAGE
ROUNDS, STEPS, WARM_UP = 3, 250, 6
#: Parameters of mallopt(3), each with its largest value: what is free at the end of the heap before it is given back,
#: and the size from which on a block is not of the heap.
TRIM, MMAP = (-1, 2**31 - 1), (-3, 32 * 2**20)


def batches(rig: Rig, kept: bool) -> list[tuple[float, int]]:
    """CPU seconds to join each batch, and the page faults since the one before."""
    if kept:
        libc = ctypes.CDLL(None)
        assert libc.mallopt(*TRIM) and libc.mallopt(*MMAP)
    faults: list[int] = []
    with closing(rig.subject(threads=False).open(Layout(0), 1)) as pipe:
        trial = run_trial(
            pipe,
            [0.0] * (WARM_UP + STEPS),
            WARM_UP,
            take=lambda _: faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt),
        )
    since = [after - before for before, after in zip(faults[WARM_UP - 1 :], faults[WARM_UP:], strict=False)]
    return [(note.collate, count) for note, count in zip(trial.notes, since, strict=True)]


def run(rig: Rig, kept: bool) -> dict[str, Any]:
    """A few processes of one kind."""
    found = [one for _ in range(ROUNDS) for one in run_forked([partial(batches, rig, kept)], "tensors")]
    anew = [[seconds for seconds, faults in one if faults > PAGES / 2] for one in found]
    dear = [seconds for one in anew for seconds in one]
    return {
        "what": "memory is kept" if kept else "memory as usual",
        "batches": f"{STEPS} of {BATCH} tensors of 1 MiB, in each of {ROUNDS} processes",
        "new": [round(len(one) / STEPS, 3) for one in anew],
        "batch_ms": [round(1e3 * statistics.mean(seconds for seconds, _ in one), 2) for one in found],
        "new_ms": round(1e3 * statistics.mean(dear), 2) if dear else None,
    }


def main() -> None:
    """Run both and write the record."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        spec = WorkloadSpec(target_of("tensors"), os.path.join(folder, "tensors"), batch_size=BATCH)
        make_data(spec)
        rig = Rig(spec)
        runs = [run(rig, kept) for kept in (False, True)]
    save("memory", f"PyTorch {torch.__version__}", runs)


if __name__ == "__main__":
    main()

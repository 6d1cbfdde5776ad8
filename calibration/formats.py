"""The same pictures in six formats, measured here: ``python calibration/formats.py`` writes formats.csv beside it.

One file per sample (`picture_formats`). The formats take turns, picture by picture, in many rounds, and the
least CPU time of each picture and step counts: other work on the machine then disturbs all formats alike, and hardly at
all. The transform is the same work in every row, so how far its times lie apart is the error of the table.

*Cores needed* is the recommendation for an accelerator that takes `RATE` samples/s from a DataLoader, with the core of
the trainer that waits for it, before cores slow each other down: warm, with the files in the page cache, and cold,
where each read waits for this machine's storage (whose own caches, and those of a virtual machine's host, are not
emptied). The pictures are generated textures, whose fine grain deflates less well than a smooth photograph. Needs
h5py; one to two minutes.
"""

from __future__ import annotations

import csv
import io
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import picture_formats

import coresim
from coresim import stats
from coresim.files import write_text
from coresim.measure.host import read_host
from coresim.measure.protocol import Context
from coresim.measure.storage import measure_storage
from coresim.workloads.base import Workload, seed_everything

TABLE = Path(__file__).with_name("formats.csv")
FORMATS = ("Jpeg", "Png", "Bmp", "Npy", "Npz", "Hdf5")
STEPS = ("fetch", "decode", "transform")
BATCH, RATE, ROUNDS = 64, 1000.0, 15
HEADER = (
    "format",
    "bytes_per_sample",
    "cold_read_ms",
    *(f"{s}_ms" for s in STEPS),
    "cpu_ms",
    "warm_cores",
    "cold_cores",
)


def workloads(folder: str) -> dict[str, Workload]:
    """Each format's workload, with its files made."""
    found: dict[str, Workload] = {name: getattr(picture_formats, f"{name}Images")(Path(folder)) for name in FORMATS}
    for workload in found.values():
        workload.make()
    return found


def cpu_times(loads: dict[str, Workload]) -> dict[str, np.ndarray]:
    """Least CPU seconds by picture and step."""
    least = {name: np.full((len(load), len(STEPS)), np.inf) for name, load in loads.items()}
    for _ in range(ROUNDS):
        for index in range(min(map(len, loads.values()))):
            for name, load in loads.items():
                least[name][index] = np.minimum(least[name][index], timed_sample(load, index))
    return least


def timed_sample(load: Workload, index: int) -> list[float]:
    """CPU seconds of each step of one sample, with the same random numbers each time."""
    rng, value, times = seed_everything(index), index, []
    for step in load.steps():
        started = time.thread_time()
        value = step.call(value, rng)
        times.append(time.thread_time() - started)
    return times


def cold_reads(load: Workload) -> Sequence[float]:
    """Seconds to read a file whole from storage; none where the page cache cannot be emptied."""
    found = {m.name: m for m in measure_storage(load.files(), Context(4.0))}
    return found["storage.cold.read"].flat if "storage.cold.read" in found else ()


def cores(prepare: Sequence[float], reads: Sequence[float]) -> str:
    """Cores recommended; nothing where no number of them is enough."""
    workload = {"batch_size": BATCH, "preprocess": {"values": list(prepare), "unit": "s"}}
    if reads:
        workload["fetch"] = {"values": list(reads), "unit": "s"}
    tables = {"workload": workload, "accelerator": {"step": f"{BATCH / RATE} s"}}
    answer = coresim.recommend(tables, options=(2,)).result
    return str(answer.point.cores) if answer.meets_target else ""


def row(name: str, load: Workload, times: np.ndarray) -> tuple[str, ...]:
    """One line of the table; cold, the copy out of the page cache (``fetch``) is made all the same."""
    reads, prepare = cold_reads(load), times.sum(axis=1)
    cold = (f"{1e3 * stats.median(reads):.3f}", cores(prepare, reads)) if reads else ("", "")
    shown = (f"{1e3 * seconds:.3f}" for seconds in (*times.mean(axis=0), prepare.mean()))
    return name.lower(), f"{load.bytes_per_sample():.0f}", cold[0], *shown, cores(prepare, ()), cold[1]


def notes(times: dict[str, np.ndarray], began: str) -> list[str]:
    """Where the table comes from, as comment lines."""
    host = read_host(load_window=0.0)
    same = [found[:, STEPS.index("transform")].mean() for found in times.values()]
    return [
        "# Written by calibration/formats.py, which says what the columns mean; do not edit.",
        f"# coresim {coresim.__version__}, {began}, {host.cpu_model}, {host.usable_cores:g} cores, {host.fingerprint}",
        f"# {ROUNDS} rounds of {len(times['Jpeg'])} pictures; load average at the end {os.getloadavg()[0]:.1f}",
        f"# batch {BATCH}, accelerator of {RATE:g} samples/s, target 5 % idle",
        f"# error of the table: times of the transform, the same work, lie {max(same) / min(same) - 1:.0%} apart",
    ]


def main() -> int:
    """Measure all formats and write the table."""
    began = datetime.now(UTC).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory() as folder:
        loads = workloads(folder)
        times = cpu_times(loads)
        rows = [row(name, load, times[name]) for name, load in loads.items()]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
    write_text(TABLE, "\n".join([*notes(times, began), text.getvalue()]))
    print(TABLE.read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

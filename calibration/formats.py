"""The same pictures in six formats, measured here: ``python calibration/formats.py`` writes formats.csv beside it.

Every format goes through the same campaign as ``coresim recommend`` (`coresim.workloads.formats`, batch 64), with one
file per sample. *Cores needed* is the recommendation for an accelerator that takes `RATE` samples/s: warm, with the
files in the page cache, and cold, with each read waiting for this machine's storage. Needs h5py; about four minutes.
"""

from __future__ import annotations

import csv
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coresim
from coresim import stats
from coresim.files import write_text
from coresim.measuring.campaign import Request, run_campaign
from coresim.model.profile import Profile
from coresim.model.profile_tables import scenario_tables

TABLE = Path(__file__).with_name("formats.csv")
FORMATS = ("Jpeg", "Png", "Bmp", "Npy", "Npz", "Hdf5")
BATCH, RATE, BUDGET = 64, 1000.0, 20.0
#: Columns and where they come from: mean bytes, then medians of undisturbed times, then recommendations.
TIMES = {
    "cold_read_ms": "storage.cold.read",
    "fetch_ms": "prepare.fetch",
    "decode_ms": "prepare.decode",
    "transform_ms": "prepare.transform",
}
HEADER = ("format", "bytes_per_sample", *TIMES, "cpu_ms", "warm_cores", "warm_range", "cold_cores", "cold_range")


def measure(name: str) -> Profile:
    """The profile of one format."""
    target = f"coresim.workloads.formats:{name}Images"
    return run_campaign(
        Request(dataset=target, batch_size=BATCH, step_time=BATCH / RATE, budget=BUDGET), command=f"formats.py {name}"
    )


def row(name: str, profile: Profile) -> tuple[str, ...]:
    """One line of the table."""
    times = {
        column: 1e3 * stats.median(found.flat) for column, source in TIMES.items() if (found := profile.get(source))
    }
    cpu = sum(times[column] for column in ("fetch_ms", "decode_ms", "transform_ms"))
    shown = (f"{times[column]:.3f}" if column in times else "" for column in TIMES)
    cold = cores(profile, True) if "cold_read_ms" in times else ("", "")
    return (name.lower(), f"{profile.bytes_per_sample:.0f}", *shown, f"{cpu:.3f}", *cores(profile, False), *cold)


def cores(profile: Profile, cold: bool) -> tuple[str, str]:
    """Cores recommended, and their interval; an empty field where no number that was tried is enough."""
    with ThreadPoolExecutor(2) as executor:
        answer = coresim.recommend(scenario_tables(profile, cold), options=(2,), executor=executor).result
    low, high = ("" if value is None else str(value) for value in (answer.cores_low, answer.cores_high))
    return str(answer.point.cores) if answer.meets_target else "", f"{low}-{high}"


def notes(profiles: list[Profile]) -> list[str]:
    """Where the table comes from, as comment lines."""
    first, host = profiles[0].provenance, profiles[0].host
    busy = sum("busy" in caution.what or "busy" in caution.value for p in profiles for caution in p.cautions)
    when = f"{first.time_utc} to {profiles[-1].provenance.time_utc}"
    where = f"{host.cpu_model}, {host.usable_cores:g} cores, host {host.fingerprint}"
    return [
        "# Written by calibration/formats.py; do not edit.",
        f"# coresim {first.tool_version}, {when}, {where}, Python {first.python_version}, numpy {first.numpy_version}",
        f"# one file per sample, batch {BATCH}, accelerator of {RATE:g} samples/s, target 5 % idle",
        "# a range that is not closed: up to more cores than were tried",
        f"# cautions that the machine was busy with other work: {busy} in {len(profiles)} campaigns",
    ]


def main() -> int:
    """Measure all formats one after the other and write the table."""
    profiles = [measure(name) for name in FORMATS]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([HEADER, *map(row, FORMATS, profiles)])
    write_text(TABLE, "\n".join([*notes(profiles), text.getvalue()]))
    print(TABLE.read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

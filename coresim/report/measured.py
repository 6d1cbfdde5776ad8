"""A summary of what was measured, as sections."""

from __future__ import annotations

from coresim.model.profile import Profile
from coresim.report.content import Facts, Items, Section
from coresim.report.provenance import profile_notes
from coresim.units import format_bytes, format_duration

#: Measured times that are told when all is measured; those of a loop are a program's that trains on a device.
_TOLD = ("prepare.", "receive.cpu", "accelerator.launch", "loop.")


def measured_sections(profile: Profile) -> tuple[Section, Section]:
    """The job with its times and its step, and the warnings."""
    ran = []
    if profile.measured_batch is not None:
        ran.append(f"the loader ran with batches of {profile.measured_batch}, because larger ones are slow")
    if profile.settings is not None:
        ran.append(f"today's settings: {profile.settings}")
    times = tuple(
        (found.name, f"{format_duration(found.mean)} per {found.unit[2:]}")
        for found in profile.measurements
        if found.unit in ("s/sample", "s/batch", "s/step") and found.name.startswith(_TOLD)
    )
    count = round(profile.host.usable_cores)
    speed = profile.speed[min(max(count, 1), len(profile.speed)) - 1]
    rest = (
        f"with {count} cores at work, each runs at {speed:.0%} of its speed alone",
        f"step: {profile.accelerator.provenance}",
    )
    title = f"{profile.workload}, batch {profile.batch_size} ({format_bytes(profile.bytes_per_batch)})"
    blocks = (Items(tuple(ran), marked=False), Facts(times), Items(rest, marked=False))
    return Section(title, blocks), Section("Warnings", (Items(profile_notes(profile)[0]),))

"""What an answer rests on: its profile's own words, and the settings that override them."""

from __future__ import annotations

from collections.abc import Sequence

from coresim.model.overrides import basis_after
from coresim.model.profile import Profile
from coresim.model.rebatch import asked_batch, step_spread
from coresim.report.text import plural


def step_provenance(profile: Profile | None, source: str | None, settings: Sequence[str]) -> str | None:
    """What the step time rests on: a setting, the profile's own words, or the file that gives it."""
    given = None if source is None else f"as given in {source}"
    known = given if profile is None else profile.accelerator.basis + _rebatched(profile, settings)
    return basis_after(settings, "accelerator.step", known)


def _rebatched(profile: Profile, settings: Sequence[str]) -> str:
    """How a step of another batch follows from the profile's."""
    batch = asked_batch(profile.batch_size, settings)
    if batch is None:
        return ""
    spread = step_spread(profile.batch_size, batch)
    return f"; taken in proportion from a batch of {profile.batch_size} to {batch}, \u00b1{200 * spread:.0f} %"


def profile_notes(profile: Profile, settings: Sequence[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The cautions of a profile, and what an answer from it and ``settings`` rests on besides the times, by lines."""
    notes = tuple(f"{what}: {value}; {remedy}" for what, value, remedy in profile.cautions)
    busy = basis_after(settings, "host.speed", profile.speed_basis)
    rests = [f"busy cores: {busy}"] if busy else []
    if asked_batch(profile.batch_size, settings) is not None:
        rests.append(
            f"times of a batch: measured with {profile.batch_size} samples; the step, collating and copying are taken"
            " in proportion to the batch, sending and receiving between that and no change; --batch-size measures it"
        )
    curve = _bandwidth(profile)
    if curve:
        known = ", ".join(f"{value / 1e9:.1f} GB/s with {plural(count, 'core')}" for count, value in curve)
        rests.append(f"memory bandwidth (STREAM triad): {known}; {_saturation(curve)}")
    return notes, tuple(rests)


def _bandwidth(profile: Profile) -> list[tuple[int, float]]:
    prefix = "bandwidth.triad."
    found = [measured for measured in profile.measurements if measured.name.startswith(prefix)]
    return sorted((int(measured.name.removeprefix(prefix)), measured.mean) for measured in found)


def _saturation(curve: list[tuple[int, float]]) -> str:
    """Fewest cores with 95 % of the best: saturated if they are not all that there are."""
    best = max(value for _, value in curve)
    enough = min(count for count, value in curve if value >= 0.95 * best)
    last = curve[-1][0]
    return f"saturated by {enough} of {last} cores" if enough < last else f"not saturated by the {last} measured"

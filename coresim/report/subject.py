"""What a report is about, and how sure it is: the first lines of its first screen."""

from __future__ import annotations

from collections.abc import Sequence

from coresim.model.profile import Profile
from coresim.model.scenario import Scenario
from coresim.report.words import plural

#: What the first words of a step's provenance say.
_STEP = {"catalogue": "a record of another machine", "measured": "measured", "given": "as given"}


def subject_of(scenario: Scenario, profile: Profile | None) -> tuple[tuple[str, str], ...]:
    """Data set, GPU, host and the day of measuring, as far as they are known."""
    device, host = scenario.accelerator, scenario.host
    batch = scenario.workload.batch_size
    data = f"{profile.workload}, " if profile else ""
    ran = f", measured with {profile.batch_that_ran}" if profile and profile.batch_that_ran != batch else ""
    count = f"{device.total} x " if device.total > 1 else ""
    machine = [profile.host.cpu_model] if profile and profile.host.cpu_model else []
    machine += [plural(host.cores, "core")] if host.cores is not None else []
    found = [
        ("data set", f"{data}batch of {batch}{ran}"),
        ("GPU", f"{count}{device.name}" if device.name else f"{count}not named"),
        ("host", ", ".join(machine) or "not named"),
        ("measured", profile.provenance.time_utc[:10] if profile else ""),
    ]
    return tuple((name, value) for name, value in found if value)


def provenance_words(scenario: Scenario, step_provenance: str | None) -> str:
    """Where the two numbers that matter most come from, in a line: the step, and the cost of a sample."""
    parts = []
    if step_provenance is not None:
        words = step_provenance if len(step_provenance) < 80 else "see below"
        known = _STEP.get(step_provenance.partition(":")[0], words)
        parts.append(f"step: {known}{_range(scenario.accelerator.step.uncertainty)}")
    cost = scenario.workload.preprocess
    if not cost.is_zero:
        parts.append(f"cost of a sample: {'measured' if cost.values else 'as given'}{_range(cost.uncertainty)}")
    return "; ".join(parts)


def _range(uncertainty: float) -> str:
    """Two standard uncertainties each way, where there are any."""
    return f", \u00b1{200 * uncertainty:.0f} %" if uncertainty >= 0.0025 else ""


def warnings(notes: tuple[str, ...]) -> str:
    """What each caution is about; its remedy stands with what the answer rests on."""
    return "; ".join(note.partition(";")[0] for note in notes)


def merged(notes: Sequence[str]) -> list[str]:
    """Warnings with the same cure as one, in their order."""
    alike: dict[str, list[str]] = {}
    cures: dict[str, str] = {}
    for note in dict.fromkeys(notes):
        what, _, cure = note.partition("; ")
        key = cure.partition(",")[0]
        alike.setdefault(key, []).append(what)
        cures[key] = max(cures.get(key, ""), cure, key=len)
    return [", ".join(whats) + (f"; {cures[key]}" if cures[key] else "") for key, whats in alike.items()]

"""A profile: the raw measurements of one job on one host and their provenance, as a versioned JSON file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coresim.errors import InputError, UnknownKeyError
from coresim.files import check_version, read_json, read_text, read_toml, renamed, write_json
from coresim.model.handover import STATES
from coresim.model.host import HostFacts
from coresim.model.keys import (
    COUNT,
    COUNT_OR_NONE,
    FLAG,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    TABLE,
    TEXT,
    UNCERTAINTIES,
    UNCERTAINTY,
    Kind,
    choice,
    key,
    list_of,
    read_section,
    section,
    write_section,
)
from coresim.model.loader_settings import LoaderSettings
from coresim.model.measurement import Measurement
from coresim.model.overrides import provenance_after
from coresim.model.profile_scenario import scenario_from
from coresim.model.rebatch import RELEASED
from coresim.model.scenario import Scenario
from coresim.model.today import Today
from coresim.model.warning import HostWarning
from coresim.units import short

FORMAT = "coresim-profile"
VERSION = 3
#: What keys of version 2 are called today.
_SINCE_2 = {"cautions": "warnings", "basis": "provenance", "speed_basis": "speed_provenance"}
#: Since batches count as pinned when torch's thread hands them on, no hand-over of theirs has the state ``work``.
OLD_PINNING = HostWarning(
    "an older coresim measured this", "hand-overs of pinned batches are milliseconds too long", "measure again"
)
OLD_HANDOVER = HostWarning(
    "an older coresim measured this",
    "it did not tell batches that the trainer had waited for from those that were there",
    "measure again",
)


@dataclass(frozen=True)
class AcceleratorSource:
    """Where the step time comes from."""

    kind: str = key(choice("measured", "catalogue", "given", "unknown"), "how the step time is known")
    provenance: str = key(TEXT, "one line: device, model, precision, source and certainty")
    uncertainty: float = key(UNCERTAINTY, "relative standard uncertainty of the step time")
    step_time_s: float | None = key(POSITIVE, "seconds per step where it was not measured here", None)
    synchronises: bool = key(FLAG, "whether the step function waits for the device", False)
    name: str | None = key(TEXT, "what the device is called", None)


@dataclass(frozen=True)
class Provenance:
    """Who measured this, when, with what."""

    tool_version: str = key(TEXT, "version of coresim")
    command: str = key(TEXT, "the command line")
    time_utc: str = key(TEXT, "when the measuring began, ISO 8601")
    host_fingerprint: str = key(TEXT, "tells this kind of machine from another")
    seed: int = key(COUNT_OR_NONE, "seed of the choice of samples", 0)
    python_version: str | None = key(TEXT, "version of Python", None)
    numpy_version: str | None = key(TEXT, "version of numpy", None)
    torch_version: str | None = key(TEXT, "version of torch; absent where it is not installed", None)


def _read_warning(value: object, where: str) -> HostWarning:
    if not isinstance(value, dict) or value.keys() != set(HostWarning._fields):
        raise InputError(f"{where} = {short(value)}: {', '.join(HostWarning._fields)} are needed; measure again")
    return HostWarning(**{name: TEXT.read(text, f"{where}.{name}") for name, text in value.items()})


def _read_measurements(value: object, where: str) -> tuple[Measurement, ...]:
    found: tuple[Measurement, ...] = _LIST.read(value, where)
    names = [measurement.name for measurement in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: {short(name)} is there twice; remove one")
    return found


_LIST = list_of(section(Measurement), "a list", least=0)
_MEASUREMENTS = replace(_LIST, read=_read_measurements)
_WARNINGS = list_of(Kind(_read_warning, {"type": "object"}, HostWarning._asdict), "a list", least=0)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What was measured of one job on one host.

    Build one with `coresim.measure.campaign.run_campaign`, or read a file with `load_document`.
    ``profile["prepare.sample"]`` is the measurement of that name.
    """

    workload: str = key(TEXT, "what the job is called")
    loader: str = key(TEXT, "which loader ran while its costs were noted")
    batch_size: int = key(COUNT, "samples per batch")
    bytes_per_batch: int = key(COUNT_OR_NONE, "bytes of one collated batch")
    arrays_per_batch: int = key(COUNT_OR_NONE, "arrays or tensors of one collated batch")
    host: HostFacts = key(Kind(HostFacts.from_dict, {"type": "object"}, HostFacts.to_dict), "the host")
    accelerator: AcceleratorSource = key(section(AcceleratorSource), "where the step time comes from")
    provenance: Provenance = key(section(Provenance), "who measured this, when, with what")
    speed: tuple[float, ...] = key(TABLE, "s(k): fitted speed of each busy core with k = 1, 2, 3, ... busy", (1.0,))
    speed_uncertainty: tuple[float, ...] = key(
        UNCERTAINTIES, "relative standard uncertainty of s(k): of each, or one number for all k > 1", (0.0,)
    )
    siblings: float = key(FRACTION, "share of a core that a second hardware thread adds where all cores are busy", 0.0)
    speed_provenance: str = key(TEXT, "what the speeds beyond the measured cores assume", "")
    measured_batch: int | None = key(
        COUNT, "samples per batch that the loader ran with; absent where it was batch_size", None
    )
    samples: int | None = key(COUNT, "distinct samples; absent for a stream", None)
    bytes_per_sample: float | None = key(NOT_NEGATIVE, "mean bytes read per sample; absent where unknown", None)
    warnings: tuple[HostWarning, ...] = key(_WARNINGS, "reasons to trust it less", ())
    settings: LoaderSettings | None = key(
        section(LoaderSettings), "those of the DataLoader that was named; absent where none was", None
    )
    today: Today | None = key(section(Today), "the program as it ran; absent where none was attached to", None)
    measurements: tuple[Measurement, ...] = key(_MEASUREMENTS, "the raw values")

    def get(self, name: str) -> Measurement | None:
        """The measurement of that name, or None where it was not taken."""
        return next((found for found in self.measurements if found.name == name), None)

    def numbered(self, prefix: str) -> dict[int, Measurement]:
        """The measurements whose names are this and a number (mostly of cores), in rising order of that number."""
        ends = {found.name.removeprefix(prefix): found for found in self.measurements if found.name.startswith(prefix)}
        return {int(end): ends[end] for end in sorted(filter(str.isdigit, ends), key=int)}

    def __getitem__(self, name: str) -> Measurement:
        """The measurement of that name.

        Raises:
            InputError: it was not taken; those that were are named.
        """
        found = self.get(name)
        if found is None:
            raise InputError(f"{name} was not measured; there are {', '.join(m.name for m in self.measurements)}")
        return found

    @property
    def batch_that_ran(self) -> int:
        """Samples of a batch in the loader's measurements; the step's and the copy's are of ``batch_size``."""
        return self.measured_batch or self.batch_size

    def scenario(self, cold: bool | None = None, batch: int | None = None) -> Scenario:
        """The scenario of the job; see `coresim.model.profile_scenario.scenario_from`."""
        return scenario_from(self, cold, batch)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready document that `from_dict` reads back to an equal profile."""
        document = {"format": FORMAT, "schema_version": VERSION} | write_section(self)
        return document | {"warnings": _WARNINGS.write(self.warnings)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "profile") -> Profile:
        """A profile from `to_dict`'s form; ``source`` begins every error.

        Raises:
            NewerFileError: written by a newer coresim.
            UnknownKeyError: a key that this version does not know.
            InputError: another format, or a bad or missing value.
        """
        check_version(source, document, FORMAT, VERSION)
        if document["schema_version"] < 2:
            raise InputError(
                f"{source}: schema_version {document['schema_version']} is of an older coresim, which measured"
                " a loader's parts one by one; measure again with coresim measure -o FILE"
            )
        known = document if document["schema_version"] == VERSION else renamed(document, _SINCE_2)
        body = {name: value for name, value in known.items() if name not in ("format", "schema_version")}
        try:
            return _with_warning(read_section(cls, body, "profile"))
        except InputError as error:
            told = isinstance(error, UnknownKeyError) or "measure again" in str(error)
            remedy = "" if told else "; measure again: coresim measure -o FILE"
            raise type(error)(f"{source}: {error}{remedy}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile; whole or not at all."""
        write_json(path, self.to_dict())


def _with_warning(profile: Profile) -> Profile:
    """The profile; with a warning if its hand-overs are of a coresim that measured them otherwise."""
    seen = [state for state in STATES if profile.get(f"receive.{state}") is not None]
    if profile.get("prepare.pin") is not None:
        old = OLD_PINNING if any(state.startswith("work") for state in seen) else None
    else:
        old = OLD_HANDOVER if seen and profile.get(RELEASED) is None else None
    return replace(profile, warnings=tuple(dict.fromkeys((*profile.warnings, old)))) if old else profile


def step_is_unknown(profile: Profile, settings: Sequence[str]) -> bool:
    """Whether neither the profile nor a setting says how long a step takes."""
    unknown = profile.accelerator.kind == "unknown"
    return unknown and provenance_after(settings, "accelerator.step", None) is None


def check_step(profile: Profile, source: str, settings: Sequence[str]) -> None:
    """InputError where nobody has said how long a step takes, and an answer needs it."""
    if step_is_unknown(profile, settings):
        raise InputError(
            f"{source}: step time unknown: nobody has said what is trained on this data set; give it as --set"
            " 'accelerator.step=98 ms', or measure again with --step, --step-time or --gpu"
        )


def load_document(path: str | os.PathLike[str]) -> Profile | dict[str, Any]:
    """A profile, or the raw tables of a scenario (TOML, or the same tables as JSON): the content tells which.

    Raises:
        InputError: unreadable, or not valid JSON or TOML.
    """
    text = read_text(path)
    if Path(path).suffix.lower() != ".json" and not text.lstrip().startswith("{"):
        return read_toml(path)
    document = read_json(path, text)
    return Profile.from_dict(document, str(path)) if "format" in document else document

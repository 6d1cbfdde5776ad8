"""From a scenario's file, a profile's file or their tables to a scenario: the one place where overrides are applied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from coresim.model.keys import check_part
from coresim.model.overrides import override
from coresim.model.profile import Profile, check_step, load_document, profile_tables
from coresim.model.scenario import SECTIONS, Scenario, read_scenario
from coresim.model.storage import stored


def scenario_of(
    document: Profile | dict[str, Any],
    source: str,
    settings: Sequence[str] = (),
    cold: bool | None = None,
    storage: str | None = None,
) -> Scenario:
    """The scenario of a profile or of a scenario's tables, with overrides.

    Args:
        document: the profile or the tables.
        source: what errors call it, such as its path; that settings changed it is said there.
        settings: overrides such as ``workload.batch_size=512``.
        cold: whether samples come from storage and not from the page cache; None: as the profile says.
        storage: a recorded tier that samples come from, whatever the input says.
    """
    tables = profile_tables(document, source, cold, settings) if isinstance(document, Profile) else document
    return read_scenario(overridden(tables, settings, storage), f"{source} with --set" if settings else source)


def overridden(tables: dict[str, Any], settings: Sequence[str], storage: str | None) -> dict[str, Any]:
    """The tables with the recorded tier of ``storage`` and then the settings applied."""
    return override(stored(tables, storage) if storage else tables, settings)


def check_overrides(settings: Sequence[str], storage: str | None) -> None:
    """Refuse, before anything is measured, overrides that are bad whatever the input is."""
    for name, table in overridden({}, settings, storage).items():
        if name in SECTIONS:
            check_part(SECTIONS[name], table, name)


def load_input(
    source: str | os.PathLike[str] | Profile | dict[str, Any],
    settings: Sequence[str] = (),
    step_needed: bool = True,
    cold: bool | None = None,
    storage: str | None = None,
) -> tuple[Scenario, Profile | None]:
    """The scenario of a profile, of tables or of a file of either, with overrides; and the profile, if it is one.

    ``step_needed``: whether a profile whose step time nobody knows is refused. All else is as in `scenario_of`.
    """
    if isinstance(source, Profile | dict):
        document, name = source, "profile" if isinstance(source, Profile) else "scenario"
    else:
        document, name = load_document(source), str(source)
    profile = document if isinstance(document, Profile) else None
    if profile and step_needed:
        check_step(profile, name, settings)
    return scenario_of(document, name, settings, cold, storage), profile

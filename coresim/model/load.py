"""Turn a scenario, a profile, or a file of either into a scenario: the only place where overrides are applied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from coresim.errors import said_of
from coresim.model.keys import check_part
from coresim.model.overrides import override
from coresim.model.profile import Profile, check_step, load_document
from coresim.model.rebatch import asked_batch
from coresim.model.scenario import SECTIONS, Scenario, read_scenario
from coresim.model.storage import stored


def scenario_of(
    document: Scenario | Profile | dict[str, Any],
    source: str,
    settings: Sequence[str] = (),
    cold: bool | None = None,
    storage: str | None = None,
) -> Scenario:
    """The scenario itself, that of a profile, or that of a scenario's tables, with overrides.

    Overrides change the written form: only this tells a key that was given from one that has its default, which a new
    preset or another storage tier replaces.

    Args:
        document: the scenario, the profile or the tables. If settings give another batch size, every time of a
            profile's batch is as it is for that size.
        source: what errors call it, such as its path; errors also say that settings changed it.
        settings: overrides such as ``workload.batch_size=512``.
        cold: whether samples come from storage and not from the page cache; None: as the profile says.
        storage: a recorded tier that samples come from, whatever the input says.
    """
    name = f"{source} with --set" if settings else source
    if isinstance(document, dict):
        return read_scenario(_overridden(document, settings, storage), name)
    scenario, given = document, None
    if isinstance(document, Profile):
        with said_of(source):
            scenario = document.scenario(cold, asked_batch(document.batch_size, settings))
        given = document.today or document.settings
    assert isinstance(scenario, Scenario)
    if not (settings or storage):
        return scenario
    tables = scenario.to_dict()
    if given is not None:
        tables["loader"] = tables.get("loader", {}) | given.loader_fields()
    return read_scenario(_overridden(tables, settings, storage), name)


def check_overrides(settings: Sequence[str], storage: str | None) -> None:
    """Refuse, before anything is measured, overrides that are bad whatever the input is."""
    for name, table in _overridden({}, settings, storage).items():
        if name in SECTIONS:
            check_part(SECTIONS[name], table, name)


def load_input(
    source: str | os.PathLike[str] | Scenario | Profile | dict[str, Any],
    settings: Sequence[str] = (),
    step_needed: bool = True,
    cold: bool | None = None,
    storage: str | None = None,
) -> tuple[Scenario, Profile | None]:
    """The scenario of what `scenario_of` takes or of a file of it, with overrides; and the profile, if it is one.

    ``step_needed``: whether a profile whose step time is not known is refused. All else is as in `scenario_of`.
    """
    if isinstance(source, Scenario | Profile | dict):
        document, name = source, "profile" if isinstance(source, Profile) else "scenario"
    else:
        document, name = load_document(source), str(source)
    profile = document if isinstance(document, Profile) else None
    if profile and step_needed:
        check_step(profile, name, settings)
    return scenario_of(document, name, settings, cold, storage), profile


def _overridden(tables: dict[str, Any], settings: Sequence[str], storage: str | None) -> dict[str, Any]:
    """The tables with the recorded tier of ``storage`` and then the settings applied."""
    return override(stored(tables, storage) if storage else tables, settings)

"""Make a scenario from a scenario, a profile, or a file of either: the one place that applies overrides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from coresim.errors import said_of
from coresim.model.overrides import changed, completed
from coresim.model.profile import Profile, check_step, load_document
from coresim.model.rebatch import asked_batch
from coresim.model.scenario import Scenario, read_scenario


def scenario_of(
    document: Scenario | Profile | dict[str, Any],
    source: str,
    settings: Sequence[str] = (),
    cold: bool | None = None,
    storage: str | None = None,
) -> Scenario:
    """The scenario of a scenario, a profile or a scenario's tables, with overrides.

    Args:
        document: the scenario, the profile or the tables. If settings give another batch size, a profile's times per
            batch are converted to it.
        source: what errors call it, such as its path; errors also say that settings changed it.
        settings: overrides such as ``workload.batch_size=512``.
        cold: whether samples come from storage and not from the page cache; None: as the profile says.
        storage: a recorded tier that samples come from, whatever the input says.
    """
    if isinstance(document, Profile):
        with said_of(source):
            scenario = document.scenario(cold, asked_batch(document.batch_size, settings))
    elif isinstance(document, Scenario):
        scenario = document
    else:
        scenario = read_scenario(completed(document, settings), source)
    if not (settings or storage):
        return scenario
    return changed(scenario, settings, storage, f"{source} with --set" if settings else source)


def load_input(
    source: str | os.PathLike[str] | Scenario | Profile | dict[str, Any],
    settings: Sequence[str] = (),
    step_needed: bool = True,
    cold: bool | None = None,
    storage: str | None = None,
) -> tuple[Scenario, Profile | None]:
    """The scenario of a file or of anything that `scenario_of` takes, with overrides; and the profile, if it is one.

    ``step_needed``: whether a profile whose step time nobody knows is refused. All else is as in `scenario_of`.
    """
    if isinstance(source, Scenario | Profile | dict):
        document, name = source, "profile" if isinstance(source, Profile) else "scenario"
    else:
        document, name = load_document(source), str(source)
    profile = document if isinstance(document, Profile) else None
    if profile and step_needed:
        check_step(profile, name, settings)
    return scenario_of(document, name, settings, cold, storage), profile

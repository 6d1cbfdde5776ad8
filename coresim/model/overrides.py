"""``section.key=value`` settings of a scenario, as ``--set`` takes them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coresim.errors import InputError, UnknownKeyError, said_of
from coresim.files import check_values
from coresim.model.keys import read_part, unknown_key, written
from coresim.model.presets import PRESETS, Preset
from coresim.model.scenario import SECTIONS, Loader, Scenario
from coresim.model.storage import from_storage, is_from_storage, tiers
from coresim.units import short

#: Required keys of a scenario that settings may give instead of its file.
NEEDED = ("workload.batch_size", "workload.preprocess", "workload.sample_bytes", "accelerator.step")


def changed(
    scenario: Scenario, settings: Sequence[str], storage: str | None = None, source: str = "scenario"
) -> Scenario:
    """The scenario with ``section.key=value`` settings applied; the value is TOML, or a text as it stands.

    A section may be left out where only one has the key; ``section.key.mean=value`` sets one entry of a service table.
    A new ``loader.preset`` replaces the keys of the old preset, and keeps those that the scenario sets itself. A
    ``host.storage`` replaces how samples are fetched, unless ``workload.fetch`` is set too.

    Args:
        scenario: what is changed.
        settings: the settings; if two set one key, the later one holds.
        storage: the recorded tier of ``host.storage``, unless a setting names another.
        source: what errors call the scenario.

    Raises:
        InputError: not of that form, an unknown section, a value that a file could not have, or a preset that changes
            the work without what it then costs.
    """
    tables: dict[str, dict[str, Any]] = {"host": {"storage": storage}} if storage else {}
    for setting in settings:
        (section, name, *entry), text = _parsed(setting)
        table, value = tables.setdefault(section, {}), _value(text, setting)
        if entry:
            before = table[name] if name in table else written(getattr(scenario, section), name)
            value = _with_entry(before, entry[0], value)
        table[name] = value
    preset = PRESETS.get(str(tables.get("loader", {}).get("preset")))
    if preset is not None and preset != scenario.preset:
        _check_work(preset, settings)
        scenario = replace(scenario, loader=_of_preset(scenario.loader, preset))
    with said_of(source):
        parts = {
            section: replace(getattr(scenario, section), **read_part(SECTIONS[section], table, section))
            for section, table in tables.items()
        }
        found = replace(scenario, **parts)
        return found if "fetch" in tables.get("workload", ()) else _stored(found, scenario, tables.get("host", {}))


def completed(document: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The tables of a file, with the missing keys of `NEEDED` that settings give."""
    found = dict(document)
    for setting in settings:
        (section, name, *entry), text = _parsed(setting)
        own, table = document.get(section, {}), found.get(section, {})
        if f"{section}.{name}" in NEEDED and isinstance(own, dict) and name not in own:
            value = _value(text, setting)
            found[section] = table | {name: _with_entry(table.get(name), entry[0], value) if entry else value}
    return found


def check_settings(settings: Sequence[str]) -> None:
    """Refuse settings that are bad whatever the scenario is; the entry of a table depends on it."""
    for setting in settings:
        (section, name, *entry), text = _parsed(setting)
        read_part(SECTIONS[section], {} if entry else {name: _value(text, setting)}, section)


def _with_entry(table: Any, entry: str, value: Any) -> dict[str, Any]:
    known = table if isinstance(table, dict) else {} if table is None else {"mean": table}
    return {**known, entry: value}


def _of_preset(loader: Loader, preset: Preset) -> Loader:
    """The loader with the keys of another preset in place of those of its own."""
    plain, own = Loader(), PRESETS[loader.preset].loader
    kept = {name: getattr(loader, name) for name in preset.loader if getattr(loader, name) != _usual(plain, own, name)}
    fresh = {name: getattr(plain, name) for name in own if getattr(loader, name) == own[name]}
    return replace(loader, **(fresh | read_part(Loader, preset.loader, "loader") | kept))


def _usual(plain: Loader, keys: Mapping[str, Any], name: str) -> Any:
    return keys.get(name, getattr(plain, name))


def _stored(found: Scenario, before: Scenario, host: Mapping[str, Any]) -> Scenario:
    """``found`` with samples from the tier that it names, if ``host`` sets that or if they were ``before``."""
    tier, size = tiers().get(before.host.storage or ""), before.workload.sample_bytes
    if found.host.storage is None or not ("storage" in host or is_from_storage(before)):
        return found
    own = "storage" not in host and tier and size and before.host.storage_streams != tier.streams(size)
    kept = found.host.storage_streams if own or "storage_streams" in host else None
    return from_storage(replace(found, host=replace(found.host, storage_streams=kept)))


def given(settings: Sequence[str], key: str) -> Any:
    """The last value that settings give a key (``section.key``); None: they give it none."""
    found = None
    for setting in settings:
        path, text = _parsed(setting)
        if ".".join(path) == key:
            found = _value(text, setting)
    return found


def _check_work(preset: Preset, settings: Sequence[str]) -> None:
    """A new preset needs the costs of the work too, if it stands for other work."""
    said = {".".join(_parsed(setting)[0][:2]) for setting in settings}
    if preset.needs and not said & set(preset.needs):
        raise InputError(
            f"preset {preset.name}: the input's costs are not those of {preset.system}: say them too, as --set"
            f" '{preset.needs[0]}=1 ms'{''.join(f' or {key}' for key in preset.needs[1:])}, or see what coresim whatif"
            f" --remedy {preset.remedy} assumes"
        )


def provenance_after(settings: Sequence[str], key: str, known: str | None) -> str | None:
    """Where a key's value comes from: the last of ``settings`` that gives it, or else what was ``known``.

    A setting of an entry beside the value (an uncertainty) is named after it.
    """
    for setting in settings:
        parts, text = _parsed(setting)
        path = ".".join(parts)
        by = f"the setting {path}={text} (--set)"
        if path in (key, f"{key}.mean", f"{key}.values"):
            known = f"given by {by}"
        elif path.startswith(f"{key}."):
            known = f"{known or 'as given'}, with {by}"
    return known


def _parsed(setting: str) -> tuple[list[str], str]:
    """The full path of a setting's key, and its value as text."""
    path, equals, text = setting.partition("=")
    if not equals:
        raise InputError(f"--set {short(setting)}: write section.key=value, such as 'accelerator.step=98 ms'")
    return _full_path(path.strip(), setting), text.strip()


def _full_path(path: str, setting: str) -> list[str]:
    parts = path.split(".")
    if len(parts) > 3:
        raise InputError(f"--set {short(setting)}: write section.key=value, or section.key.entry=value")
    if parts[0] in SECTIONS and len(parts) > 1:
        return parts
    if parts[0] in SECTIONS:
        raise InputError(f"--set {short(setting)}: {path} is a section; write {path}.key=value")
    owners = [name for name, kind in SECTIONS.items() if parts[0] in kind.__dataclass_fields__]
    if len(owners) != 1:
        known = {name: None for kind in SECTIONS.values() for name in kind.__dataclass_fields__}
        raise UnknownKeyError(f"--set {short(setting)}: {unknown_key(path, parts[0], {**SECTIONS, **known})}")
    return [owners[0], *parts]


def _value(text: str, setting: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, or a number or a nesting that nothing here takes
        return text
    check_values(value, f"--set {short(setting)}")
    return value

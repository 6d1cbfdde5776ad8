"""``section.key=value`` settings over the tables of a scenario, as ``--set`` takes them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from coresim.errors import InputError, UnknownKeyError
from coresim.files import check_values
from coresim.model.keys import unknown_key
from coresim.model.presets import Preset, preset_of
from coresim.model.scenario import SECTIONS
from coresim.units import short


def override(document: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The document with ``section.key=value`` settings applied; the value is TOML, or a text as it stands.

    A section may be left out where only one has the key; ``section.key.mean=value`` sets one entry of a service table.

    Raises:
        InputError: not of that form, an unknown section, or a preset that changes the work without what it then costs.
    """
    before = preset_of(document)
    result = {name: dict(table) if isinstance(table, dict) else table for name, table in document.items()}
    for setting in settings:
        path, text = _parsed(setting)
        _set(result, path, _value(text, setting))
    if (preset := preset_of(result)) is not None and preset != before:
        _check_work(preset, settings)
    return result


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


def _set(document: dict[str, Any], path: list[str], value: Any) -> None:
    table = document.setdefault(path[0], {})
    if not isinstance(table, dict):
        raise InputError(f"{path[0]} = {short(table)}: a table is needed, such as [{path[0]}]")
    for name in path[1:-1]:
        inner = table.get(name, {})
        table[name] = dict(inner) if isinstance(inner, dict) else {"mean": inner}
        table = table[name]
    table[path[-1]] = value

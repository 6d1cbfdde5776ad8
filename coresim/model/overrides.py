"""``section.key=value`` settings over the tables of a scenario, as ``--set`` takes them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from coresim.errors import InputError, UnknownKeyError
from coresim.model.keys import unknown_key
from coresim.model.scenario import SECTIONS


def override(document: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The document with ``section.key=value`` settings applied; the value is TOML, or a text as it stands.

    A section may be left out where only one has the key; ``section.key.mean=value`` sets one entry of a service table.

    Raises:
        InputError: not of that form, or an unknown section.
    """
    result = {name: dict(table) if isinstance(table, dict) else table for name, table in document.items()}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting!r}: write section.key=value, such as 'accelerator.step=98 ms'")
        _set(result, _full_path(path.strip(), setting), _value(text.strip()))
    return result


def given(settings: Sequence[str], key: str) -> Any:
    """The value that settings give a key (``section.key``), the last of them; None: they give it none."""
    found = None
    for setting in settings:
        path, equals, text = setting.partition("=")
        if equals and ".".join(_full_path(path.strip(), setting)) == key:
            found = _value(text.strip())
    return found


def basis_after(settings: Sequence[str], key: str, basis: str | None) -> str | None:
    """What a key's value rests on after ``settings``: its ``basis``, or the last of them that gives it.

    One that sets an entry beside the value (an uncertainty) is named behind the basis.
    """
    for setting in settings:
        name, _, text = setting.partition("=")
        path = ".".join(_full_path(name.strip(), setting))
        by = f"the setting {path}={text.strip()} (--set)"
        if path in (key, f"{key}.mean", f"{key}.values"):
            basis = f"given by {by}"
        elif path.startswith(f"{key}."):
            basis = f"{basis or 'as given'}, with {by}"
    return basis


def _full_path(path: str, setting: str) -> list[str]:
    parts = path.split(".")
    if parts[0] in SECTIONS and len(parts) > 1:
        return parts
    if parts[0] in SECTIONS:
        raise InputError(f"--set {setting!r}: {path} is a section; write {path}.key=value")
    owners = [name for name, kind in SECTIONS.items() if parts[0] in kind.__dataclass_fields__]
    if len(owners) != 1:
        known = {name: None for kind in SECTIONS.values() for name in kind.__dataclass_fields__}
        raise UnknownKeyError(f"--set {setting!r}: {unknown_key(path, parts[0], {**SECTIONS, **known})}")
    return [owners[0], *parts]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set(document: dict[str, Any], path: list[str], value: Any) -> None:
    table = document.setdefault(path[0], {})
    if not isinstance(table, dict):
        raise InputError(f"{path[0]} = {table!r}: a table is needed, such as [{path[0]}]")
    for name in path[1:-1]:
        inner = table.get(name, {})
        table[name] = dict(inner) if isinstance(inner, dict) else {"mean": inner}
        table = table[name]
    table[path[-1]] = value

"""Loader presets as data: the ``[loader]`` keys that a framework's loader stands for, and how that was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from coresim.files import DATA, read_toml
from coresim.model.option import Option


@dataclass(frozen=True)
class Preset:
    """One row of ``coresim/data/presets.toml``, whose head says what each field means."""

    name: str
    system: str
    loader: Mapping[str, Any]
    options: tuple[Option, ...]
    settings: str
    framework: str
    checked: str
    how: str
    limits: str
    needs: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def usual_option(self) -> Option:
        """Overlapped if the loader can be that, else the first option that it can be."""
        return Option.OVERLAPPED if Option.OVERLAPPED in self.options else self.options[0]


def _load() -> dict[str, Preset]:
    found = {}
    for name, row in read_toml(DATA / "presets.toml").items():
        row |= {"loader": MappingProxyType(row["loader"]), "options": tuple(map(Option, row["options"]))}
        found[name] = Preset(name, **row | {"needs": tuple(row.get("needs", ()))})
    return found


PRESETS: Mapping[str, Preset] = MappingProxyType(_load())


def preset_of(document: Mapping[str, Any]) -> Preset | None:
    """The preset that a scenario's tables name, if they name one."""
    loader = document.get("loader")
    name = loader.get("preset") if isinstance(loader, dict) else None
    return PRESETS.get(name) if isinstance(name, str) else None

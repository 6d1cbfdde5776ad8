"""Published cases, read from ``coresim/data/cases.toml``, which says what its fields mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from coresim.files import read_toml
from coresim.model.option import Option

#: Rounding of decimals in the file must not decide whether a number lies within its tolerance.
ROUNDING = 1e-9
Value = float | str


@dataclass(frozen=True)
class Setting:
    """How a case runs; the fields are those of ``[case.setting]`` and ``[case.runs.NAME]``."""

    option: int = Option.OVERLAPPED
    workers: int = 1
    cores: float = 1.0
    prefetch_factor: int | None = None
    options: tuple[int, ...] = tuple(Option)
    most_workers: int = 1
    jobs: int = 1
    samples: tuple[float, ...] = ()
    replications: int = 2
    set: tuple[str, ...] = ()
    base: str | None = None


@dataclass(frozen=True)
class Expectation:
    """What a run must give; the fields are those of ``[[case.expect]]``."""

    quantity: str
    value: Value
    must: str
    because: str
    run: str = ""
    over: str | None = None
    tolerance: float = 0.0
    high: float | None = None
    calibrated: bool = False
    expected_miss: str | None = None
    predicted: float | None = None

    def holds(self, found: Value) -> bool:
        """Whether a prediction is what it must be."""
        if self.must == "exact":
            return found == self.value
        number, value = float(found), float(self.value)
        slack = self.tolerance * (value if self.must == "relative" else 1.0) + ROUNDING * abs(value)
        least = -math.inf if self.must == "at most" else value
        most = {"at least": math.inf, "between": self.high or value}.get(self.must, value)
        return least - slack <= number <= most + slack


@dataclass(frozen=True, eq=False)
class Case:
    """One published case; compared by identity, so that its runs can be kept."""

    number: int
    name: str
    source: str
    given: str
    assumed: str = "nothing"
    #: Batches come in bursts, which a short window cuts somewhere; over so many steps that shows in no digit.
    steps: int = 4000
    scenario: Mapping[str, Any] = field(default_factory=dict)
    runs: Mapping[str, Setting] = field(default_factory=dict)
    expects: tuple[Expectation, ...] = ()


@cache
def load() -> tuple[Case, ...]:
    """The cases, from the package's data."""
    with resources.as_file(resources.files("coresim") / "data" / "cases.toml") as path:
        return tuple(_read(table) for table in read_toml(path)["case"])


def _read(table: dict[str, Any]) -> Case:
    setting, runs = table.pop("setting", {}), table.pop("runs", {"": {}})
    expects = tuple(Expectation(**item) for item in table.pop("expect", ()))
    scenario, knots = table.pop("scenario", {}), table.pop("knots", {})
    if "speed" in knots:
        scenario["host"] = {**scenario.get("host", {}), "speed": _between(knots["speed"], 1)}
    if "slowdown" in knots:
        scenario["accelerator"]["slowdown"] = _between(knots["slowdown"], 0)
    settings = {name: _setting({**setting, **run}) for name, run in runs.items()}
    return Case(**table, scenario=scenario, runs=settings, expects=expects)


def _setting(table: dict[str, Any]) -> Setting:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return Setting(**fields)


def _between(knots: list[list[float]], first: int) -> list[float]:
    """A table from ``first`` to the last knot, straight between knots."""
    positions, values = zip(*knots, strict=True)
    return [float(value) for value in np.interp(range(first, math.ceil(positions[-1]) + 1), positions, values)]

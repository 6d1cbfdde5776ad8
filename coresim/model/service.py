"""Service times: what one unit of work takes on an unshared core, as a number, a distribution or raw values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from coresim import stats
from coresim.errors import InputError, UnknownKeyError
from coresim.model.checks import kept_hash
from coresim.model.keys import DURATION, UNCERTAINTY, Kind, choice, real
from coresim.units import LONGEST_S, SECONDS, parse_duration, short

DISTRIBUTIONS = ("constant", "exponential", "gamma", "lognormal", "values")
_SMALLEST_CV = 1e-9
_CV, _SHAPE, _UNIT = real(0, 1000), choice(*DISTRIBUTIONS[:-1]), choice(*SECONDS)
#: How to read a value without a unit of its own, by the unit of the whole table.
_NUMBERS = {unit: real(0, LONGEST_S / seconds) for unit, seconds in SECONDS.items()}
_KEYS = {
    "mean": DURATION.schema,
    "cv": _CV.schema,
    "distribution": {"enum": list(DISTRIBUTIONS)},
    "values": {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
    "unit": _UNIT.schema,
    "uncertainty": UNCERTAINTY.schema,
}


@dataclass(frozen=True)
class Service:
    """A non-negative random time in seconds.

    ``uncertainty`` is the relative standard uncertainty of the mean itself (what a repeat of the measurement in a fresh
    process would change); it widens the answer's interval, not the spread of one run.
    """

    mean: float
    cv: float = 0.0  # coefficient of variation: standard deviation / mean
    distribution: str = "constant"  # one of `DISTRIBUTIONS`
    values: tuple[float, ...] = ()  # the empirical ones, s, where ``distribution == "values"``
    uncertainty: float = 0.0

    __hash__ = kept_hash

    @property
    def is_zero(self) -> bool:
        """Whether the time is always zero."""
        return self.mean == 0.0

    def scaled(self, factor: float, spread: float = 0.0) -> Service:
        """The same shape with every time multiplied by ``factor``, itself uncertain by ``spread`` (relative)."""
        if self.is_zero or (factor == 1.0 and not spread):
            return self
        uncertainty = math.hypot(self.uncertainty, spread)
        if self.values:
            return empirical(tuple(value * factor for value in self.values), uncertainty)
        return replace(self, mean=self.mean * factor, uncertainty=uncertainty)

    def longer(self, more: Service) -> Service:
        """Every time longer by the mean of ``more``; the spread in seconds stays, and uncertainties are independent.

        A parametric time keeps its mean and its standard deviation, an exponential one as a gamma.
        """
        mean = self.mean + more.mean
        if not mean:
            return self
        uncertainty = math.hypot(self.mean * self.uncertainty, more.mean * more.uncertainty) / mean
        if self.values:
            return empirical(tuple(value + more.mean for value in self.values), uncertainty)
        kind = "gamma" if self.distribution == "exponential" else self.distribution
        return replace(self, mean=mean, cv=self.cv * self.mean / mean, distribution=kind, uncertainty=uncertainty)

    def to_table(self) -> dict[str, Any]:
        """The table that `read_service` reads back to an equal value."""
        table: dict[str, Any] = {"values": list(self.values), "unit": "s"} if self.values else {}
        if not self.values:
            table["mean"] = f"{self.mean!r} s"
        if self.distribution in ("gamma", "lognormal"):
            table["cv"] = self.cv
        if self.distribution in ("gamma", "exponential"):
            table["distribution"] = self.distribution
        if self.uncertainty:
            table["uncertainty"] = self.uncertainty
        return table


ZERO = Service(0.0)


def empirical(values: tuple[float, ...], uncertainty: float = 0.0) -> Service:
    """A service time that takes its values as measured, s."""
    mean = stats.mean(values)
    cv = math.sqrt(stats.variance(values)) / mean if mean else 0.0
    return Service(mean, cv, "values", values, uncertainty)


def read_service(value: object, where: str) -> Service:
    """A `Service` from a duration text or a table with ``mean``, ``cv``, ``distribution`` or ``values``.

    ``mean`` beside ``values`` rescales the values to that mean.

    Raises:
        InputError: a missing unit, a negative or non-finite number, an unknown key or distribution, or a
            distribution without what it needs.
    """
    if not isinstance(value, dict):
        return Service(parse_duration(value, where))
    unknown = sorted(set(value) - set(_KEYS))
    if unknown:
        raise UnknownKeyError(f"{where}.{unknown[0]}: unknown key; use {', '.join(_KEYS)}")
    uncertainty = UNCERTAINTY.read(value.get("uncertainty", 0.0), f"{where}.uncertainty")
    if "values" in value:
        return replace(_read_values(value, where), uncertainty=uncertainty)
    return replace(_read_parametric(value, where), uncertainty=uncertainty)


def _read_values(table: dict[str, Any], where: str) -> Service:
    raw = table["values"]
    if table.get("distribution", "values") != "values":
        raise InputError(f"{where}: values and distribution = {short(table['distribution'])} exclude each other")
    if "cv" in table:
        raise InputError(f"{where}: values and cv exclude each other; the values have their own spread")
    if not isinstance(raw, list) or not raw:
        raise InputError(f"{where}.values = {short(raw)}: a list of at least one time is needed")
    unit = table.get("unit")
    if unit is not None:
        _UNIT.read(unit, f"{where}.unit")
    service = empirical(tuple(_read_value(item, unit, f"{where}.values") for item in raw))
    if "mean" not in table:
        return service
    if service.is_zero:
        raise InputError(f"{where}.mean: values that are all zero cannot be rescaled to a mean; leave one out")
    return service.scaled(parse_duration(table["mean"], f"{where}.mean") / service.mean)


def _read_value(item: object, unit: str | None, where: str) -> float:
    if unit is None or isinstance(item, str):
        return parse_duration(item, where)
    return float(_NUMBERS[unit].read(item, where)) * SECONDS[unit]


def _read_parametric(table: dict[str, Any], where: str) -> Service:
    if "mean" not in table:
        raise InputError(f'{where}: mean missing; write mean = "5.2 ms" or values = [...]')
    if "unit" in table:
        raise InputError(f"{where}.unit: goes with values only; write the unit into mean")
    mean = parse_duration(table["mean"], f"{where}.mean")
    cv = _CV.read(table["cv"], f"{where}.cv") if "cv" in table else None
    name = _SHAPE.read(table.get("distribution", "constant" if not cv else "lognormal"), f"{where}.distribution")
    fixed = {"constant": 0.0, "exponential": 1.0}.get(name)
    if fixed is not None and cv is not None and cv != fixed:
        raise InputError(
            f"{where}.cv = {cv:g}: a {name} time has cv {fixed:g}; leave cv out, or use gamma or lognormal"
        )
    if fixed is None and cv is None:
        raise InputError(f"{where}.cv: missing; a {name} time needs one, such as cv = 0.4")
    spread = (fixed or 0.0) if cv is None else cv
    return Service(mean, 0.0, "constant") if spread < _SMALLEST_CV or not mean else Service(mean, spread, name)


_TABLE = {"type": "object", "additionalProperties": False, "properties": _KEYS}
SERVICE = Kind(read_service, {"anyOf": [DURATION.schema, _TABLE]}, Service.to_table)

"""What `scaling.py` holds against published curves: the model of s(k), and what one would take in its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from curves import PUBLISHED, Curve, evidence, rate_of

from coresim.model import lock
from coresim.model.speed import fit
from coresim.model.speed_draws import ASSUMED, LEVEL_DEVIATIONS, Assumed

#: What the model that this one replaces took: the memory fraction, and its standard deviation.
OLD_FRACTION, OLD_DEVIATION = 0.1, 0.1


class Predicted(NamedTuple):
    """A rate, and its interval of 90 %."""

    low: float
    value: float
    high: float


#: What is given of a curve, to a prediction at any count.
Model = Callable[[Curve], Callable[[int], Predicted]]


class Row(NamedTuple):
    """One published value beside its prediction."""

    curve: Curve
    count: int
    predicted: Predicted

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted.value / self.curve.published[self.count] - 1.0

    @property
    def held(self) -> bool:
        """Whether the interval holds the published value."""
        return self.predicted.low <= self.curve.published[self.count] <= self.predicted.high


def by_model(assumed: Assumed = ASSUMED) -> Model:
    """Predictions of `coresim.model.speed`, and of threads under the lock by `coresim.model.lock`."""

    def of(curve: Curve) -> Callable[[int], Predicted]:
        if curve.lock:
            return partial(_locked, curve, assumed)
        table = fit(evidence(curve), curve.cores or max(*curve.given, *curve.published), assumed)
        cores, one = len(table.values), min(curve.given)
        base = rate_of(table, one, cores)

        def predict(count: int) -> Predicted:
            found = rate_of(table, count, cores)
            return _capped(curve, curve.given[one] * found.value / base.value, found.uncertainty, assumed.misfit)

        return predict

    return of


def _locked(curve: Curve, assumed: Assumed, count: int) -> Predicted:
    """With two given, the time that passing takes is what the second shows."""
    one, *more = sorted(curve.given)
    passing, deviation = lock.PASSING, lock.DEVIATION
    if more:
        share = (1.0 - 1.0 / more[0]) or 1.0
        seen, noise = (curve.given[one] / curve.given[more[0]] - 1.0) / share, PUBLISHED * math.sqrt(2.0) / share
        weight = deviation**2 / (deviation**2 + noise**2)
        passing, deviation = passing + weight * (seen - passing), deviation * math.sqrt(1.0 - weight)
    longer = lock.longer(count, passing)
    value = curve.given[one] * lock.longer(one, passing) / longer
    spread = deviation * (1.0 - 1.0 / count) / longer
    return _capped(curve, value, math.hypot(spread, assumed.misfit), assumed.misfit)


def _capped(curve: Curve, value: float, uncertainty: float, noise: float) -> Predicted:
    half = LEVEL_DEVIATIONS * uncertainty
    least, most = (curve.cap * math.exp(sign * LEVEL_DEVIATIONS * noise) for sign in (-1, 1))
    return Predicted(min(value * math.exp(-half), least), min(value, curve.cap), min(value * math.exp(half), most))


def simple(speed: Callable[[float, float], float]) -> Model:
    """s(k) = speed(f, k) with f = 0.1 ± 0.1, narrowed by a second given value; threads under the lock lose nothing."""

    def of(curve: Curve) -> Callable[[int], Predicted]:
        one, last = min(curve.given), max(curve.given)
        ratio = curve.given[last] / last / (curve.given[one] / one)

        def off(f: float) -> float:
            seen = (speed(f, last) / speed(f, one) / ratio - 1.0) / PUBLISHED
            return seen**2 + ((f - OLD_FRACTION) / OLD_DEVIATION) ** 2

        likely = min((step / 1000 for step in range(301)), key=off) if last > one else OLD_FRACTION

        def rate(fraction: float, count: int) -> float:
            busy = one if curve.lock else min(count, curve.cores or math.inf)
            return min(curve.cap, curve.given[one] / one * busy * speed(fraction, busy) / speed(fraction, one))

        def predict(count: int) -> Predicted:
            return Predicted(*(rate(f, count) for f in (OLD_FRACTION + 2 * OLD_DEVIATION, likely, 0.0)))

        return predict

    return of


#: What this model is compared with: the extrapolation that it replaces, and two that know nothing.
OTHERS = {
    "before: f = 0.1, r(k) = k": simple(lambda fraction, k: 1.0 / (1.0 + fraction * (k - 1.0))),
    "a straight line, 2 % a core": simple(lambda fraction, k: max(0.05, 1.0 - 0.2 * fraction * (k - 1.0))),
    "no loss": simple(lambda fraction, k: 1.0),
}


def rows(curves: Iterable[Curve], model: Model) -> list[Row]:
    """Every published value beside its prediction."""
    found = ((curve, model(curve)) for curve in curves)
    return [Row(curve, count, predict(count)) for curve, predict in found for count in sorted(curve.published)]

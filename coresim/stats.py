"""Small statistics with no heavy imports: means, quantiles, Student-t intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

#: Quantile and distribution function of the standard normal distribution.
normal_quantile, normal_probability = NormalDist().inv_cdf, NormalDist().cdf


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; an empty sequence is an error, never zero."""
    if not values:
        raise ValueError("mean of no values")
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Unbiased sample variance (n - 1); 0 for one value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def quantile(values: Sequence[float], fraction: float) -> float:
    """Linear-interpolation quantile (Hyndman and Fan, type 7)."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("quantile of no values")
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def median(values: Sequence[float]) -> float:
    """Middle value."""
    return quantile(values, 0.5)


@cache
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution, by bisection on its exact finite series.

    Source of the series: Abramowitz and Stegun, *Handbook of Mathematical Functions*, 26.7.3 and 26.7.4.
    """
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while _t_distribution(high, degrees) < probability:
        high *= 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _t_distribution(middle, degrees) < probability else (low, middle)
    return 0.5 * (low + high)


def _t_distribution(t: float, degrees: int) -> float:
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    term, total = (1.0, 0.0) if degrees % 2 == 0 else (cosine, 0.0)
    start = 0 if degrees % 2 == 0 else 1
    for power in range(start, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    within = sine * total if degrees % 2 == 0 else 2.0 / math.pi * (theta + sine * total)
    return 0.5 + 0.5 * within


def t_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Two-sided Student-t interval of the mean; of one value its ends are infinite."""
    centre = mean(values)
    if len(values) < 2:
        return (-math.inf, math.inf)
    half = t_quantile(0.5 + level / 2, len(values) - 1) * math.sqrt(variance(values) / len(values))
    return (centre - half, centre + half)

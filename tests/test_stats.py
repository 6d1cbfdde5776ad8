"""Statistics: against stored values, against scipy where there is one, and the coverage of the interval itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresim.stats import (
    mean,
    median,
    normal_probability,
    normal_quantile,
    quantile,
    t_interval,
    t_quantile,
    variance,
)

#: Quantiles of Student's t: probability, degrees of freedom, value (any printed table has them).
TABLE = [
    (0.95, 1, 6.313751515), (0.975, 1, 12.706204736), (0.975, 2, 4.302652730), (0.975, 3, 3.182446305),
    (0.975, 5, 2.570581836), (0.95, 7, 1.894578605), (0.995, 9, 3.249835542), (0.975, 10, 2.228138852),
    (0.95, 30, 1.697260887), (0.975, 30, 2.042272456), (0.995, 100, 2.625890521),
]  # fmt: skip


@pytest.mark.parametrize(("probability", "degrees", "value"), TABLE)
def test_t_quantiles_are_those_of_the_tables(probability: float, degrees: int, value: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(value, rel=1e-8)
    assert t_quantile(1 - probability, degrees) == pytest.approx(-value, rel=1e-8)


def test_t_comes_near_the_normal_distribution() -> None:
    assert t_quantile(0.975, 20_000) == pytest.approx(normal_quantile(0.975), rel=1e-4)
    assert t_quantile(0.5, 4) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="degree of freedom"):
        t_quantile(0.9, 0)


def test_quantiles_agree_with_scipy() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for probability in (0.001, 0.05, 0.5, 0.8, 0.99, 0.9995):
        assert normal_quantile(probability) == pytest.approx(scipy.norm.ppf(probability), abs=1e-9)
        assert normal_probability(probability) == pytest.approx(scipy.norm.cdf(probability), rel=1e-12)
        for degrees in (1, 2, 3, 4, 9, 23, 150):
            expected = scipy.t.ppf(probability, degrees)
            assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-8, abs=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.floats(0, 1))
def test_moments_and_quantiles_agree_with_numpy(values: list[float], fraction: float) -> None:
    assert mean(values) == pytest.approx(np.mean(values), abs=1e-6)
    assert variance(values) == pytest.approx(np.var(values, ddof=1), rel=1e-6, abs=1e-6)
    assert quantile(values, fraction) == pytest.approx(np.quantile(values, fraction), abs=1e-6)
    assert median(values) == pytest.approx(np.median(values), abs=1e-6)


def test_a_few_values_by_hand() -> None:
    assert (mean([1.0, 2.0, 6.0]), variance([1.0, 2.0, 6.0]), median([6.0, 1.0, 2.0])) == (3.0, 7.0, 2.0)
    assert (quantile([1.0, 2.0, 4.0], 0.75), quantile([5.0], 0.3), variance([5.0])) == (3.0, 5.0, 0.0)
    low, high = t_interval([1.0, 2.0, 6.0], 0.95)
    assert (low, high) == pytest.approx((3 - 4.302652730 * math.sqrt(7 / 3), 3 + 4.302652730 * math.sqrt(7 / 3)))


def test_nothing_is_no_number() -> None:
    for function in (mean, median):
        with pytest.raises(ValueError, match="of no values"):
            function([])
    assert t_interval([3.0], 0.95) == (-math.inf, math.inf)


@pytest.mark.parametrize("size", [3, 8])
def test_the_interval_covers_as_often_as_it_says(size: int) -> None:
    # 2,000 samples: 95 % with a standard error of 0.5 %.
    samples = np.random.default_rng(17).normal(5.0, 2.0, (2000, size)).tolist()
    covered = sum(low <= 5.0 <= high for low, high in (t_interval(sample, 0.95) for sample in samples)) / 2000
    assert 0.935 <= covered <= 0.965


def test_an_interval_from_the_normal_distribution_would_cover_too_seldom() -> None:
    samples = np.random.default_rng(17).normal(5.0, 2.0, (2000, 3)).tolist()
    z = normal_quantile(0.975)
    inside = [abs(mean(sample) - 5.0) <= z * math.sqrt(variance(sample) / 3) for sample in samples]
    assert sum(inside) / 2000 < 0.90

"""Service times."""

from __future__ import annotations

import pytest

from coresim.model.service import Service, empirical


def test_a_service_grows_and_keeps_its_spread_in_seconds():
    more = Service(1.0, uncertainty=0.5)
    assert Service(3.0, uncertainty=0.1).longer(more) == Service(4.0, uncertainty=pytest.approx(0.34**0.5 / 4))
    assert empirical((1.0, 3.0)).longer(Service(1.0)).values == (2.0, 4.0)
    shaped = Service(1.0, 1.0, "exponential").longer(Service(3.0))
    assert (shaped.mean, shaped.cv, shaped.distribution) == (4.0, 0.25, "gamma")
    assert Service(0.0).longer(Service(0.0)) == Service(0.0)

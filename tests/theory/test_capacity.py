"""What cores do together, as far as it grows."""

from __future__ import annotations

from coresim.theory.capacity import saturation


def test_saturation():
    assert saturation((1.0,)) is None
    assert saturation((1.0,) * 40) is None  # still grows
    assert saturation((1.0, 0.9, 0.66, 0.5, 0.4)) == 3
    assert saturation((1.0, 0.5, 0.34)) == 1

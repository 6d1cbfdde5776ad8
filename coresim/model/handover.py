"""What handing a batch from a worker to the trainer takes, as recorded, for hosts that could not measure it."""

from __future__ import annotations

from typing import Any


def recorded_handover(size: int, arrays: int) -> dict[str, Any]:
    """What being handed a batch by PyTorch's DataLoader takes the trainer, as recorded, for a host without torch.

    Source: our own `coresim.measuring.transport` on a 2.5 GHz Xeon, PyTorch 2.13, November 2026, four repeats: 0.75 to
    1.03 ms a batch, 0.30 to 0.53 ms a tensor, 0.09 to 0.16 ns a byte. On another CPU within a factor of two: a
    judgement.
    """
    return {"mean": f"{0.9e-3 + 0.42e-3 * arrays + 0.13e-9 * size!r} s", "uncertainty": 0.35}


def recorded_sending(size: int) -> dict[str, Any]:
    """What handing a batch over costs a DataLoader's worker beyond collating it, as recorded, for a host without torch.

    Source: our own `coresim.measuring.sending` on one core of a 2.5 GHz Xeon, PyTorch 2.13, November 2026: 0.7 ms for
    a batch of 16 kB, and 0.5 to 0.9 ns a byte for batches of 14 to 150 MB. On another CPU within a factor of two: a
    judgement.
    """
    return {"mean": f"{recorded_sending_seconds(size)!r} s", "uncertainty": 0.35}


def recorded_sending_seconds(size: float) -> float:
    """The same as seconds, of a batch of ``size`` bytes."""
    return 0.7e-3 + 0.8e-9 * size

"""The loader alone, run in the process that owns it: the one calibration, with the program's own loader as its subject.

What it imports is imported here only, when a loop that trains has been found.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any


def calibrate(loader: Any, *, budget_s: float) -> dict[str, Any]:
    """Run the loader with 1, 2, 4, ... workers, and note what each part costs; plain data, to be written to a file.

    Args:
        loader: the program's own.
        budget_s: wall seconds; slow batches may take longer.

    Raises:
        InputError: the data set or the collate function failed in a worker.
    """
    from coresim.measure import calibrate as instrument  # noqa: PLC0415 (see the module's text)
    from coresim.measure import costs  # noqa: PLC0415
    from coresim.measure.cautions import cautions_of  # noqa: PLC0415
    from coresim.measure.torch_loader import TorchSubject  # noqa: PLC0415

    subject = TorchSubject(loader, type(loader.dataset).__name__)
    found = instrument.calibrate(subject, budget_s=budget_s)
    return {
        "loader": subject.loader,
        "measurements": [asdict(measurement) for measurement in costs.measurements(found)],
        "cautions": [list(caution) for caution in cautions_of(found)],
    }

"""The loader alone, run in the process that owns it: the one calibration, with the program's own loader as its subject.

Numpy, torch and the measuring are imported only when a loop that trains has been found.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from coresim.errors import InputError
from coresim.model.warning import HostWarning


def calibrate(loader: Any, *, workers: int | None, pin_memory: bool, budget_s: float) -> dict[str, Any]:
    """Run the loader with 1, 2, 4, ... workers, and note what each part costs; plain data, to be written to a file.

    Args:
        loader: the program's own.
        workers: how many the program has. A data set that cannot be read with more, such as a stream of as many files,
            is not.
        pin_memory: whether a thread copies its batches to pinned memory.
        budget_s: wall seconds; slow batches may take longer.

    Raises:
        InputError: the data set or the collate function failed in a worker.
    """
    from coresim.measure import calibrate as instrument  # noqa: PLC0415 (see the module's text)
    from coresim.measure import costs  # noqa: PLC0415
    from coresim.measure.cautions import cautions_of  # noqa: PLC0415
    from coresim.measure.torch_loader import TorchSubject  # noqa: PLC0415

    subject = TorchSubject(loader, type(loader.dataset).__name__)
    cautions = []
    try:
        found = instrument.calibrate(subject, budget_s=budget_s, pin_memory=pin_memory)
    except InputError as error:
        usual = instrument.worker_counts(len(os.sched_getaffinity(0)), subject)
        if not workers or workers >= max(usual):
            raise
        able = sorted({*(count for count in usual if count < workers), workers})
        found = instrument.calibrate(subject, budget_s=budget_s, pin_memory=pin_memory, counts=able)
        cautions.append(
            HostWarning(
                f"the loader failed with more workers than the program's {workers}",
                str(error),
                "what more of them cost is not known; cure that before you give it more",
            )
        )
    return {
        "loader": subject.loader,
        "measurements": [asdict(measurement) for measurement in costs.measurements(found)],
        "cautions": [list(caution) for caution in (*cautions, *cautions_of(found))],
    }

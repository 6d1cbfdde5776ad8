"""From what a campaign found to a `Profile`: the speed fit as plain numbers, and where it all came from."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence

import numpy as np

from coresim import __version__
from coresim.measure.server import Calibrated, Facts
from coresim.measuring.parts import version_of
from coresim.measuring.scaling import fit_speed
from coresim.model.caution import Caution
from coresim.model.host import HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource, Profile, Provenance

MOST_CORES = 64
FAR = 2


def assemble(
    facts: Facts,
    loader: Calibrated,
    host: HostFacts,
    source: AcceleratorSource,
    found: Sequence[Measurement],
    cautions: Sequence[Caution],
    made: Provenance,
) -> Profile:
    """The profile of one campaign."""
    speed, uncertainty, assumes = fitted_speed(found)
    return Profile(
        workload=facts.name,
        loader=facts.loader,
        batch_size=facts.batch_size,
        samples=None if facts.samples == sys.maxsize else facts.samples,
        bytes_per_sample=facts.bytes_per_sample,
        bytes_per_batch=loader.batch_bytes,
        arrays_per_batch=loader.batch_arrays,
        host=host,
        accelerator=source,
        provenance=made,
        speed=speed,
        speed_uncertainty=uncertainty,
        speed_basis=assumes,
        cautions=tuple(cautions),
        measurements=tuple(found),
    )


def fitted_speed(found: Sequence[Measurement]) -> tuple[tuple[float, ...], float, str]:
    """s(1), s(2), ... s(64) of the fit, its relative standard uncertainty, and what it assumes.

    One number stands for the uncertainty at every k: that at twice the measured cores, as far as an answer from
    this machine usually reaches.
    """
    scaling = [m for m in found if m.name.startswith("scaling.")]
    model = fit_speed(scaling, [m for m in found if m.name.startswith("bandwidth.triad.")])
    measured = len(model.measured)
    speeds = tuple(model.at(cores).value for cores in range(1, max(MOST_CORES, measured) + 1))
    far = model.at(FAR * measured)
    # The range is about 95 %: two standard deviations each way; its upper end is cut at 1, so the lower one tells.
    return speeds, (far.value - far.low) / far.value / 2, model.assumes


def provenance(command: str, began: str, host: HostFacts) -> Provenance:
    """Where a profile comes from, with the versions of what may change the numbers."""
    return Provenance(
        tool_version=__version__,
        command=command,
        time_utc=began,
        host_fingerprint=host.fingerprint,
        python_version=platform.python_version(),
        numpy_version=np.__version__,
        torch_version=version_of("torch"),
    )

"""From what a campaign found to a `Profile`: the speed fit as plain numbers, and where it all came from."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence

import numpy as np

from coresim import __version__
from coresim.measure.parts import version_of
from coresim.measure.rig import DatasetFacts
from coresim.measure.server import Calibrated
from coresim.measure.speed import speed_table
from coresim.model.host import HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource, Profile, Provenance
from coresim.model.warning import HostWarning


def assemble(
    facts: DatasetFacts,
    loader: Calibrated,
    host: HostFacts,
    source: AcceleratorSource,
    found: Sequence[Measurement],
    cautions: Sequence[HostWarning],
    made: Provenance,
) -> Profile:
    """The profile of one campaign."""
    # A sample is read from its file and written; collating reads it and writes it once more.
    moved = (facts.bytes_per_sample or 0.0) + 3.0 * loader.batch_bytes / facts.batch_size
    speed = speed_table(found, host, moved)
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
        speed=speed.values,
        speed_uncertainty=speed.uncertainties,
        siblings=speed.sibling,
        speed_basis="; ".join(speed.provenance),
        cautions=tuple(cautions),
        settings=facts.settings,
        measurements=tuple(found),
    )


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

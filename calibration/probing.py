"""What the probes share: the question put to each framework, and the record with its provenance.

Every probe controls the service times with sleeps and records counts and orders, never durations. *Started*: how many
items have been started once everything has come to rest, after each batch that the consumer takes. It shows when a
credit returns and what every buffer adds.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coresim.files import write_json

PROBES = Path(__file__).with_name("probes")
#: Seconds after which everything is at rest: many times what the sleeps of a probe add up to.
REST = 0.4
TAKEN = 5


def started_after_each(take: Callable[[], Any], started: Callable[[], int], count: int = TAKEN) -> list[int]:
    """Items started at rest after 1, 2, ... ``count`` batches were taken."""
    found = []
    for _ in range(count):
        take()
        time.sleep(REST)
        found.append(started())
    return found


def save(name: str, framework: str, runs: Sequence[dict[str, Any]]) -> None:
    """Write ``probes/NAME.json`` and show it."""
    PROBES.mkdir(exist_ok=True)
    document = {
        "format": "coresim-probe",
        "schema_version": 1,
        "framework": framework,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "command": f"python calibration/{Path(sys.argv[0]).name}",
        "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "runs": list(runs),
    }
    write_json(PROBES / f"{name}.json", document)
    for run in runs:
        print(run)

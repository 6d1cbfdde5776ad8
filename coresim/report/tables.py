"""pandas' one home: results as tidy tables, with a unit in every column name that has one."""

from __future__ import annotations

import io
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pandas as pd

from coresim.errors import MissingPartError
from coresim.files import write_bytes
from coresim.report.document import curve_rows
from coresim.report.results import COLUMNS, ROW
from coresim.report.simulated import estimate_shares

if TYPE_CHECKING:
    from coresim.advise.recommend import Recommendation
    from coresim.fleet.plan import FleetPlan
    from coresim.model.profile import Profile
    from coresim.sim.estimate import Estimate
    from coresim.validate.ledger import Ledger


def curve_frame(answer: Recommendation) -> pd.DataFrame:
    """One row for each option and core count of a recommendation."""
    return pd.DataFrame(curve_rows(answer))


def estimate_frame(estimate: Estimate) -> pd.DataFrame:
    """Where the time of one setting went: one row for each server group and state, as a share of its time."""
    groups = estimate_shares(estimate, counted=False)
    rows = [(group, state, share) for group, states in groups.items() for state, share in states.items()]
    return pd.DataFrame(rows, columns=["group", "state", "share"])


def profile_frame(profile: Profile) -> pd.DataFrame:
    """One row for each measurement of a profile: its mean and interval in its unit, and how much it rests on.

    A single value has no interval, and no measured quantity is below 0.
    """
    rows = [
        {
            "name": found.name,
            "unit": found.unit,
            "mean": found.mean,
            "low": max(0.0, found.interval()[0]) if len(found.flat) > 1 else None,
            "high": found.interval()[1] if len(found.flat) > 1 else None,
            "values": len(found.flat),
            "processes": len(found.values),
        }
        for found in profile.measurements
    ]
    return pd.DataFrame(rows)


def fleet_frame(plan: FleetPlan) -> pd.DataFrame:
    """One row for each workload, machine and option of a fleet plan."""
    return pd.DataFrame([ROW.write(row) for row in plan.rows], columns=list(COLUMNS))


def check_parquet() -> None:
    """MissingPartError where no package can write Parquet: said before a long plan, not after it."""
    if not any(map(find_spec, ("pyarrow", "fastparquet"))):
        raise MissingPartError("Parquet: pyarrow is not installed; write CSV, or pip install pyarrow")


def write_parquet(plan: FleetPlan, path: str | os.PathLike[str]) -> None:
    """Write a fleet plan's table as Parquet; errors are those of `check_parquet` and `write_bytes`."""
    check_parquet()
    content = io.BytesIO()
    fleet_frame(plan).to_parquet(content, index=False)
    write_bytes(path, content.getvalue())


def ledger_frame(ledger: Ledger) -> pd.DataFrame:
    """One row for each point of a validation that counts: its setting, idle measured and predicted, in percent."""
    names = ("workload", "option", "workers", "cores", "prefetch_factor", "sync", "ordered")
    rows = [
        {
            **{name: getattr(point.setting, name) for name in names},
            "step_ms": 1e3 * point.step_s,
            "measured_idle_percent": 100 * point.idle,
            "predicted_idle_percent": 100 * point.prediction.idle,
            "error_points": 100 * point.error,
            "rates_idle_percent": 100 * point.rate_idle,
            "queue_idle_percent": 100 * point.buffer_idle,
            "covered": point.covered,
        }
        for point in ledger.scored
    ]
    return pd.DataFrame(rows)

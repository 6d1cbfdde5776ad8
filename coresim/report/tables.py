"""pandas' one home: results as tidy tables, with a unit in every column name that has one."""

from __future__ import annotations

import io
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pandas as pd

from coresim.errors import MissingPartError
from coresim.files import write_bytes
from coresim.report.document import CURVE_ROW, Placed
from coresim.report.results import COLUMNS, ROW
from coresim.report.simulated import estimate_shares

if TYPE_CHECKING:
    from coresim.advise.recommend import Recommendation
    from coresim.fleet.plan import FleetPlan
    from coresim.model.profile import Profile
    from coresim.sim.estimate import Estimate


def curve_frame(answer: Recommendation) -> pd.DataFrame:
    """One row for each option and core count of a recommendation."""
    points = (point for option in answer.options for point in option.curve)
    return pd.DataFrame([CURVE_ROW.write(Placed(answer.scenario, None, point)) for point in points])


def estimate_frame(estimate: Estimate) -> pd.DataFrame:
    """The time of one setting: one row for each server group and state, as a share of the group's time."""
    groups = estimate_shares(estimate, counted=False)
    rows = [(group, state, share) for group, states in groups.items() for state, share in states.items()]
    return pd.DataFrame(rows, columns=["group", "state", "share"])


def profile_frame(profile: Profile) -> pd.DataFrame:
    """One row for each measurement of a profile: its mean and interval in its unit, and the number of its values.

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
    """MissingPartError if no package can write Parquet; call it before a long plan, not after it."""
    if not any(map(find_spec, ("pyarrow", "fastparquet"))):
        raise MissingPartError("Parquet: pyarrow is not installed; write CSV, or pip install pyarrow")


def write_parquet(plan: FleetPlan, path: str | os.PathLike[str]) -> None:
    """Write a fleet plan's table as Parquet, after `check_parquet`; errors are those of `write_bytes`."""
    content = io.BytesIO()
    fleet_frame(plan).to_parquet(content, index=False)
    write_bytes(path, content.getvalue())

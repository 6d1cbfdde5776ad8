"""Timelines for Perfetto."""

from __future__ import annotations

import json
from itertools import pairwise

from report_kit import TABLES

from coresim.model.build import build
from coresim.model.scenario import read_scenario
from coresim.report.trace import write_trace
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate


def test_trace_is_a_perfetto_timeline_whose_steps_follow_one_another(tmp_path):
    path = tmp_path / "trace.json"
    write_trace(str(path), build(read_scenario(TABLES), 2, 3, 2), Plan(steps=50), simulate)
    events = json.loads(path.read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X" and event["name"].startswith("step")]
    assert len(steps) == 50
    assert all(before["ts"] + before["dur"] <= after["ts"] + 1e-6 for before, after in pairwise(steps))
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"accelerator", "loader 0", "loader 1"}

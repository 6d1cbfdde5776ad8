"""Timelines for Perfetto."""

from __future__ import annotations

import json
from itertools import pairwise

from coresim.model.build import build
from coresim.model.scenario import read_scenario
from coresim.report.trace import write_trace
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate

TABLES = {
    "workload": {"batch_size": 8, "preprocess": "4 ms", "fetch": "1 ms", "consumer": "1 ms", "batch_bytes": 1e6},
    "accelerator": {"step": "12 ms", "launch": "1 ms"},
    "host": {"cores": 2, "threads_per_core": 2, "shm_bytes": 1e6},
}


def test_trace_is_a_perfetto_timeline_whose_steps_follow_one_another(tmp_path):
    path = tmp_path / "trace.json"
    write_trace(str(path), build(read_scenario(TABLES), 2, 3, 2), Plan(steps=50), simulate)
    events = json.loads(path.read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X" and event["name"].startswith("step")]
    assert len(steps) == 50
    assert all(before["ts"] + before["dur"] <= after["ts"] + 1e-6 for before, after in pairwise(steps))
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"accelerator", "loader 0", "loader 1"}

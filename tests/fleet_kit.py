"""A fleet, its job and its machines, for tests."""

from __future__ import annotations

from dataclasses import replace

from coresim.fleet.description import Candidate, FleetWorkload
from coresim.model.scenario import read_scenario

JOB = """
[workload]
batch_size = 64
preprocess = { mean = "6 ms", cv = 0.4, distribution = "lognormal" }
collate = "2 ms"
batch_bytes = 38535168
[accelerator]
step = "100 ms"
launch = "4 ms"
name = "A100-SXM4-80GB"
"""


FLEET = """
machines = ["aws:p4d.24xlarge", "nvidia:dgx-a100-640", "lambda:gpu_1x_h100_pcie"]
[[workload]]
name = "vision"
path = "job.toml"
gpu_hours = 100
cpu = "Xeon Platinum 8275CL"
steps = { H100 = "50 ms" }
[[workload]]
name = "text"
path = "job.toml"
gpu_hours = 40
set = ["workload.preprocess=0.5 ms"]
[[site]]
name = "site"
gpus = [1, 2]
most_cores_per_gpu = 8
threads_per_core = 2
price_per_core_h = 0.05
price_per_gpu_h = 1.0
"""


def job(**changes: object) -> FleetWorkload:
    tables = {
        "workload": {"batch_size": 64, "preprocess": "6 ms", "collate": "2 ms"},
        "accelerator": {"step": "100 ms", "launch": "4 ms", "name": "A100-SXM4-80GB"},
    }
    made = FleetWorkload("job", read_scenario(tables), 100.0, "A100-SXM4-80GB", "EPYC 7742")
    return replace(made, **changes)  # type: ignore[arg-type]


def host(name: str = "box", gpu: str | None = "NVIDIA A100 SXM 80GB", **changes: object) -> Candidate:
    cpu = "AMD EPYC 7742 64-Core Processor"
    made = Candidate(name=name, gpu=gpu, gpu_count=1, cores_per_gpu=16.0, cpu=cpu)
    return replace(made, **changes)  # type: ignore[arg-type]

"""What to ask a scheduler for."""

from __future__ import annotations

import math
from dataclasses import replace

from fleet_kit import host, job

from coresim.fleet.plan import Row
from coresim.fleet.task import Outcome
from coresim.model.scenario import read_scenario
from coresim.model.service import Service
from coresim.report.scheduler_requests import memory_gib, scheduler_requests


def test_the_requests_of_a_row() -> None:
    sizes = {"batch_size": 64, "preprocess": "6 ms", "batch_bytes": 2**20 * 10}
    scenario = read_scenario({"workload": sizes, "accelerator": {"step": "100 ms"}})
    outcome = Outcome(5, 8.0, 4, 2, 0.01, 0.0, 0.02, 1000.0)
    candidate = host(gpu_count=2, threads_per_core=2)
    row = Row("k", replace(job(), scenario=scenario), candidate, 2, outcome, ())
    found = scheduler_requests(row)
    # 5 cores of 2 threads for each of 2 GPUs; (4 x 2 + 1) batches of 10 MiB for each, and a quarter more.
    assert found["slurm"] == "#SBATCH --gpus-per-node=2\n#SBATCH --cpus-per-gpu=10"
    assert found["docker"] == "docker run --gpus 2 --cpus=20 --shm-size=225m"
    lines = found["kubernetes"].splitlines()
    assert lines[2].replace("requests", "") == lines[3].replace("limits", "") and 'cpu: "20"' in lines[2]
    # Two trainers of 8 GB; 8 workers of 1 GB (assumed) and 18 batches of 10 MiB, and a quarter more of these.
    assert "memory: 25Gi," in lines[2]
    assert "8 GB (assumed) for each trainer, 1 GB (assumed) for each of 8 workers, 189 MB of batches" in lines[0]
    known = replace(scenario, workload=replace(scenario.workload, worker_bytes=2.5e8))
    assert memory_gib(replace(row, workload=job(scenario=known)))[0] == math.ceil(
        (2 * 8e9 + 1.25 * (8 * 2.5e8 + 18 * 10 * 2**20)) / 2**30
    )
    assert memory_gib(replace(row, option=1)) == (15, "8 GB (assumed) for each trainer")
    # In stages: four at work, two that wait, and the one that is copied.
    assert f"--shm-size={math.ceil(1.25 * 2 * 7 * 10)}m" in scheduler_requests(replace(row, option=3))["docker"]
    # And three that are fetched and not prepared, as large as the others, since nobody said how large.
    fetched = replace(scenario, workload=replace(scenario.workload, fetch=Service(0.001)))
    asked = scheduler_requests(replace(row, option=3, workload=job(scenario=fetched)))
    assert f"--shm-size={math.ceil(1.25 * 2 * 10 * 10)}m" in asked["docker"]
    assert "medium: Memory, sizeLimit: 225Mi" in lines[-1]
    assert "num_workers=4, prefetch_factor=2, pin_memory=True" in found["dataloader"]
    # What was measured on a CPU runs on a GPU there.
    on_cpu = replace(scenario, accelerator=replace(scenario.accelerator, copies=False))
    assert scheduler_requests(replace(row, workload=job(scenario=on_cpu)))["dataloader"] == found["dataloader"]
    assert scheduler_requests(replace(row, option=1))["dataloader"] == "DataLoader(..., num_workers=0)"
    in_words_of = replace(scenario, loader=replace(scenario.loader, preset="tf.data"))
    assert scheduler_requests(replace(row, workload=job(scenario=in_words_of)))["dataloader"].startswith("map(f, num_")
    short = replace(row, outcome=replace(outcome, minimum_cores=None))
    assert "--cpus-per-gpu=16" in scheduler_requests(short)["slurm"]

"""The answer for a node of several GPUs comes first, and is of what its ranks need together."""

from __future__ import annotations

from pathlib import Path

import pytest

import coresim
from coresim.cli.main import main
from coresim.report.node import node_words

JOB = """
[workload]
batch_size = 10
preprocess = "3 ms"
batch_bytes = 1e6
worker_bytes = 2e6
[accelerator]
step = "20 ms"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def test_the_first_line_is_of_the_node(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", str(job), "--gpus", "4", "--options", "2", "--max-cores", "6"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    answer = coresim.recommend(job, settings=["accelerator.count=4"], options=(2,), max_cores=6)
    cores, workers = answer.cores_per_gpu, answer.workers
    memory = 4 * (answer.result.point.prefetch_factor * workers + 1) * 1e6 + 4 * workers * 2e6
    start = f"{4 * cores} CPU cores for the node of 4 GPUs, {4 * workers} workers ({workers} per rank), "
    assert first.startswith(start) and f"{memory / 1e6:.0f} MB of memory; {cores} CPU cores per GPU" in first


def test_one_gpu_is_no_node(job: Path) -> None:
    assert node_words(coresim.recommend(job, options=(2,), max_cores=4).result) == ""

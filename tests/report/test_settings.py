"""The answer for a node of several GPUs comes first, and is of what its ranks need together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shared import SIZED_JOB, check

import coresim
from coresim.cli.main import main
from coresim.report.schemas import schemas
from coresim.report.settings import node_words


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(SIZED_JOB)
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


def test_the_node_leads_where_no_core_count_meets_the_target_too(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = ["--set", "accelerator.step=5 ms"]
    assert main(["recommend", str(job), "--gpus", "4", "--options", "2", "--max-cores", "2", *slow]) == 4
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("8 CPU cores for the node of 4 GPUs, ")
    assert " of memory come nearest: no core count tried keeps the GPU idle within 5.0 %" in text
    assert "Nearest: 2 CPU cores per GPU, option 2" in text


def test_json_has_the_node_too(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", str(job), "--gpus", "4", "--options", "2", "--max-cores", "6", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["recommendation"]
    cores, workers, factor = (found[name] for name in ("cores_per_gpu", "workers", "prefetch_factor"))
    memory = 4 * (factor * workers + 1) * 1e6 + 4 * workers * 2e6
    assert found["node"] == {"gpus": 4, "cores": 4 * cores, "workers": 4 * workers, "memory_bytes": memory}
    check(schemas()["recommend"], document)

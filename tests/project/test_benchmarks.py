"""Benchmarks are no tests, and take long; but what they import, ask for and read of an answer must be there."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from shared import BENCHMARKS, benchmark

from coresim.cli.attach import split
from coresim.cli.main import build_parser, main
from coresim.workloads.registry import target_of

torch_is_here = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="its loaders are torch's")


def asked(words: list[str]) -> Any:
    """What coresim makes of the words before the program, if any; it refuses flags that it does not have."""
    return build_parser().parse_args(split(words)[0])


@pytest.fixture(scope="module")
def answer(profile_path: Path) -> dict[str, Any]:
    """What ``recommend --json`` prints for a saved profile."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["recommend", str(profile_path), "--json", "--max-cores", "3"]) in (0, 4)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_what_it_needs(path: Path) -> None:
    if path.stem == "peers":
        pytest.importorskip("torch")
    assert callable(benchmark(path.stem).main)


def test_repeated_answers_are_read(answer: dict[str, Any]) -> None:
    repeat, found = benchmark("repeat"), answer["recommendation"]
    asked([*repeat.COMMAND, "--quick"])
    for low, high, told in ((2, 5, (2, 5)), (None, 5, (0.0, 5)), (2, None, (2, float("inf")))):
        stated = found | {"cores_low": low, "cores_high": high}
        assert repeat.interval(stated) == told
        assert repeat.line(stated).startswith(f"{found['cores_per_gpu']} cores ({told[0]:g} to ")
    low, high = repeat.interval(found | {"cores_low": None, "cores_high": None})
    assert not low <= found["cores_per_gpu"] <= high  # it states nothing, so it holds nothing


@torch_is_here
def test_what_is_held_beside_a_peer_is_read(answer: dict[str, Any]) -> None:
    peers = benchmark("peers")
    for job in peers.JOBS.values():
        assert asked(peers.words_of(job)).batch_size == job.batch_size
        assert target_of(job.workload)
    for meets in (True, False):
        best = answer["recommendation"] | {"meets_target": meets}
        setting = peers.setting_of(answer | {"recommendation": best}, 1.5)
        own = answer["own_host"]
        assert (setting.workers, setting.prefetch_factor, setting.took_s) == (
            own["workers"], own["prefetch_factor"], 1.5,
        )  # fmt: skip
        assert setting.more.startswith(f"predicted idle {own['gpu_idle']:.1%} [")
        assert (f"{best['cores_per_gpu']} cores" in setting.more) == meets


def test_jobs_that_are_timed_are_those_of_a_profile_with_keys_that_there_are(profile_path: Path) -> None:
    timed = benchmark("recommend")
    plain = timed.read_input(str(profile_path), [])
    for changes in timed.JOBS:
        assert timed.read_input(str(profile_path), list(changes)) != plain


def test_watching_is_asked_for_as_it_is_offered(tmp_path: Path) -> None:
    overhead = benchmark("overhead")
    commands = overhead.commands(tmp_path / "job.py", tmp_path, 0)
    assert list(commands) == ["bare", "coresim", "traceml-ai 0.5.0"]
    words = commands["coresim"]
    assert words[1:3] == ["-m", "coresim"] and split(words[3:])[1] == commands["bare"]
    assert asked(words[3:]).interval == "10 s"
    compile(overhead.JOB, "job.py", "exec")


@torch_is_here
def test_hooks_are_timed_with_and_without_and_are_gone_afterwards() -> None:
    import torch

    overhead, base = benchmark("overhead"), torch.utils.data.dataloader._BaseDataLoaderIter
    own = base.__next__
    assert len(overhead.hooks_alone(turns=2, batches=8)) == 2
    assert base.__next__ is own
    told = overhead.alone([1e-6, 3e-6, 3e-6, 9e-6])
    assert told.startswith("hooks alone: 3.0 us a batch (quartiles 1.5 to 7.5): 0.30% of 1 ms, 0.10% of 3 ms")


def test_a_figure_is_the_median_of_what_each_run_adds_to_the_bare_one() -> None:
    overhead = benchmark("overhead")
    steps = [str(step) for step in overhead.STEPS_S]
    bare = [{step: float(step) + 0.001 for step in steps} for _ in range(3)]
    ours = [{step: found[step] + more for step in steps} for found, more in zip(bare, (1e-5, 2e-5, 9e-5), strict=True)]
    lines = overhead.table({"bare": bare, "coresim": ours})
    assert len(lines) == 1 + len(steps)
    assert lines[1].split() == ["1", "ms", "2.000", "ms", "+20", "us", "=", "+1.00%"]


def test_a_data_set_that_is_built_once_is_asked_for_and_measured() -> None:
    once = benchmark("built_once")
    assert asked(list(once.COMMAND)).dataset == "samples.py:Samples"
    assert once.memory_of(os.getpid()) > 1e6 and once.memory_of(2**30) == 0.0
    assert "built 2 times, 1.50 GB" in once.line(once.Answer(3.0, 2, 1.5e9))

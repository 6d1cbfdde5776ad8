"""Recorded storage tiers, and the share of reads that the page cache misses: closed forms, rules, a real kernel."""

from __future__ import annotations

import json
import math
import random
import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import page_cache
import pytest

from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.load import scenario_of
from coresim.model.page_cache import UNCERTAINTY, miss_share
from coresim.model.profile import Profile, load_document
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.service import Service
from coresim.model.storage import data_bytes, misses_of, missing, tiers

MEASURED = Path(__file__).parents[2] / "calibration" / "page_cache.json"
JOB = '[workload]\nbatch_size = 32\npreprocess = "1 ms"\nsample_bytes = 120e3\n[accelerator]\nstep = "60 ms"\n'


def job(**tables: dict[str, object]) -> Scenario:
    work = {"batch_size": 32, "preprocess": "1 ms"} | tables.get("workload", {})
    return read_scenario({"workload": work, "accelerator": {"step": "60 ms"}, "host": tables.get("host", {})})


# The page cache


def ideal_share(cached: float) -> float:
    """Misses of a cache that always holds the same share of the set."""
    return max(0.0, 1.0 - cached)


def lru_share(cached: float) -> float:
    """Misses of a least-recently-used cache with a fresh random order each epoch: 1 - c - (1 - c) ln(1 - c).

    A sample at place x of one epoch and y of the next is found if the share of others read in between, 1 - x (1 - y),
    is below c; x and y are independent and uniform.
    """
    left = ideal_share(cached)
    return left - left * math.log(left) if left else 0.0


def played_lru(cached: float, samples: int = 2000, epochs: int = 6) -> float:
    """Misses of a least-recently-used cache, played."""
    cache: OrderedDict[int, None] = OrderedDict()
    order, generator, misses = list(range(samples)), random.Random(3), 0
    for epoch in range(epochs):
        generator.shuffle(order)
        for sample in order:
            misses += epoch > 0 and sample not in cache
            cache.pop(sample, None)
            cache[sample] = None
            if len(cache) > cached * samples:
                cache.popitem(last=False)
    return misses / (samples * (epochs - 1))


@pytest.mark.parametrize("cached", [0.1, 0.35, 0.65, 0.9])
def test_the_closed_form_is_a_least_recently_used_cache(cached: float) -> None:
    assert lru_share(cached) == pytest.approx(played_lru(cached), abs=0.01)


def test_published_values_of_the_closed_forms() -> None:
    assert [round(lru_share(cached), 2) for cached in (0.35, 0.65)] == [0.93, 0.72]
    assert [round(ideal_share(cached), 2) for cached in (0.35, 0.65)] == [0.65, 0.35]
    assert lru_share(1.0) == ideal_share(1.5) == 0.0


@pytest.mark.parametrize("memory", [1e8, 50e9, 400e9])
def test_the_kernel_keeps_more_than_least_recently_used_and_less_than_the_ideal(memory: float) -> None:
    found = [miss_share(memory / cached, memory).share for cached in (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)]
    assert found == sorted(found, reverse=True)
    for cached, share in zip((0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95), found, strict=True):
        assert ideal_share(cached) < share < lru_share(cached)
    assert miss_share(memory, memory).share == 0.0


def test_a_real_kernel_misses_what_the_model_says() -> None:
    document = json.loads(MEASURED.read_text())
    assert document["kernel"] and document["cpu_model"] and document["time_utc"]
    size, errors = document["files"] * document["file_bytes"], []
    for run in document["runs"]:
        assert run["left_in_cache_before"] < 0.01
        late = run["missed_by_epoch"][document["epochs_left_out"] :]
        assert run["missed_share"] == pytest.approx(sum(late) / len(late))
        errors.append(miss_share(size, run["cached_share"] * size).share - run["missed_share"])
    assert len(errors) >= 15
    # The uncertainty that an answer states is half of the largest miss: a finding and no choice.
    assert UNCERTAINTY < max(map(abs, errors)) <= 2 * UNCERTAINTY
    assert math.fsum(map(abs, errors)) / len(errors) < 0.04
    # Least-recently-used is further off.
    lru = [lru_share(run["cached_share"]) - run["missed_share"] for run in document["runs"]]
    assert math.fsum(map(abs, lru)) > 1.5 * math.fsum(map(abs, errors))


def test_only_reads_that_miss_wait() -> None:
    misses = miss_share(10e9, 5e9)
    found = missing(Service(0.01, uncertainty=0.2), misses)
    assert found.mean == pytest.approx(0.01 * misses.share)
    late = [value for value in found.values if value]
    assert len(late) / len(found.values) == pytest.approx(misses.share, abs=0.005)
    assert found.uncertainty == pytest.approx(math.hypot(0.2, UNCERTAINTY / misses.share))
    assert missing(Service(0.01), None) == Service(0.01)
    assert missing(Service(0.01), miss_share(1.0, 2.0)).is_zero


def test_the_size_of_the_set_is_given_or_counted() -> None:
    assert data_bytes(job()) is None and misses_of(job()) is None
    counted = job(workload={"samples_per_epoch": 1000, "sample_bytes": 2e3}, host={"memory_bytes": 1e6})
    assert data_bytes(counted) == 2e6
    assert misses_of(counted) == miss_share(2e6, 1e6)
    assert data_bytes(job(workload={"dataset_bytes": 5.0, "samples_per_epoch": 1000, "sample_bytes": 2e3})) == 5.0


# Tiers


def test_every_tier_of_the_table_says_where_it_is_published() -> None:
    assert {tier.tier for tier in tiers().values()} == {"HDD", "SSD", "network", "object store"}
    for tier in tiers().values():
        assert tier.source and tier.notes and tier.what
        assert tier.certainty in ("data sheet", "documentation")
        assert 0 < tier.latency_low_s <= tier.latency_high_s
        assert tier.stream_bytes_per_s or tier.bandwidth_bytes_per_s
        assert tier.read_time(120e3).mean > tier.latency_low_s


def test_reads_at_once_keep_to_every_limit() -> None:
    for tier in tiers().values():
        for size in (4e3, 120e3, 50e6):
            seconds, streams = tier.read_time(size).mean, tier.streams(size)
            assert streams is not None
            rate = streams / seconds
            limits = [tier.iops, tier.bandwidth_bytes_per_s and tier.bandwidth_bytes_per_s / size]
            known = [limit for limit in limits if limit]
            assert all(rate <= limit * (1 + 1e-9) for limit in known)
            # One of them binds.
            at_a_limit = [math.isclose(rate, limit) for limit in known]
            assert any(at_a_limit) or math.isclose(streams, tier.concurrency or 0.0)


def test_a_named_tier_is_what_fetching_takes_and_given_keys_win() -> None:
    found = job(workload={"sample_bytes": 120e3}, host={"storage": "s3"})
    assert found.workload.fetch == tiers()["s3"].read_time(120e3)
    assert found.host.storage_streams == tiers()["s3"].streams(120e3)
    own = job(workload={"sample_bytes": 120e3, "fetch": "1 ms"}, host={"storage": "s3"})
    assert own.workload.fetch.mean == 0.001 and own.host.storage_streams is None
    assert read_scenario(found.to_dict()) == found
    cached = job(workload={"sample_bytes": 1e5, "dataset_bytes": 1e9}, host={"storage": "s3", "memory_bytes": 2e9})
    assert cached.workload.fetch.is_zero
    with pytest.raises(InputError, match=r"workload\.sample_bytes: missing"):
        job(host={"storage": "s3"})


def test_the_flag_wins_over_what_was_measured(profile_path: Path) -> None:
    profile = load_document(profile_path)
    assert isinstance(profile, Profile)
    profile = replace(profile, host=replace(profile.host, memory_bytes=None, memory_limit_bytes=None))
    found = scenario_of(profile, "a profile", cold=True, storage="hdd-7200")
    assert found.workload.fetch.mean > 0.01 and found.host.storage_streams == 1.0
    assert profile.scenario(cold=True).host.storage is None


def test_the_flag_and_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    idle = {}
    for name in ("ssd-nvme", "hdd-7200"):
        flags = ["--storage", name, "--workers", "4", "--cores", "6"]
        assert main(["simulate", str(path), *flags, "--json"]) == 0
        idle[name] = json.loads(capsys.readouterr().out)["gpu_idle"]
    assert idle["hdd-7200"] > idle["ssd-nvme"] + 0.5
    main(["recommend", str(path), "--storage", "s3", "--max-cores", "3", "--verbose"])
    assert "docs.aws.amazon.com" in capsys.readouterr().out
    assert main(["storage"]) == 0
    assert all(name in capsys.readouterr().out for name in ("s3",))
    assert main(["storage", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]] == list(tiers())


@pytest.mark.parametrize("verb", [["recommend"], ["simulate"], ["whatif"]])
def test_an_unknown_tier_is_refused_in_one_line(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    assert main([*verb, str(path), "--storage", "floppy"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "use one of hdd-7200" in said


def test_a_set_that_memory_holds_is_not_read_again_and_that_is_said(
    profile_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--storage", "hdd-7200", "--max-cores", "2", "--options", "1", "--verbose"]
    main(
        [
            "recommend",
            str(profile_path),
            *flags,
            "--set",
            "workload.sample_bytes=1e5",
            "--set",
            "workload.dataset_bytes=1e6",
        ]
    )
    assert "first epoch only" in capsys.readouterr().out
    main(
        [
            "recommend",
            str(profile_path),
            *flags,
            "--set",
            "workload.sample_bytes=1e5",
            "--set",
            "workload.dataset_bytes=1e15",
        ]
    )
    assert "100 % of reads miss" in capsys.readouterr().out


def test_cold_and_a_tier_exclude_each_other(profile_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", str(profile_path), "--cold", "--storage", "s3"]) == 2
    assert "leave one out" in capsys.readouterr().err


# The script that measures a real kernel


def test_without_a_control_group_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page_cache, "RESULT", tmp_path / "page_cache.json")
    monkeypatch.setattr(sys, "argv", ["page_cache.py"])
    monkeypatch.setattr(page_cache, "own_group", lambda: None)
    assert page_cache.main() == 3
    # A group inside this one can be made, and has no file for a limit: it is removed again.
    monkeypatch.setattr(page_cache, "own_group", lambda: (tmp_path, 2))
    assert page_cache.main() == 3
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all("nothing was measured" in line for line in said)


def test_both_hierarchies_tell_of_file_pages(tmp_path: Path) -> None:
    for cached in ("cache", "file"):
        (tmp_path / "memory.stat").write_text(f"{cached} 4096\nactive_file 1024\ninactive_file 3072\nslab 7\n")
        assert page_cache.file_pages(tmp_path) == {"cached": 4096, "active": 1024, "inactive": 3072}


def test_an_unknown_preset_is_refused_before_anything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    from coresim.cli.main import main

    assert main(["recommend", "--preset", "nope"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert "--preset = 'nope': use one of" in captured.err

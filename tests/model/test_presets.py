"""Presets: each row is whole, reads back, and stands for the pipeline that its framework has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import coresim
from coresim.advise.remedies import REMEDIES
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.build import build
from coresim.model.pipeline import Pipeline
from coresim.model.presets import PRESETS
from coresim.model.scenario import Scenario, read_scenario
from coresim.model.service import ZERO
from coresim.report.settings import loader_settings


def scenario(preset: str, **loader: Any) -> Scenario:
    return read_scenario(
        {
            "workload": {"batch_size": 8, "preprocess": "4 ms", "consumer": "3 ms", "copy": "2 ms", "startup": "1 s"},
            "accelerator": {"step": "20 ms", "sync": "block"},
            "loader": {"preset": preset, **loader},
        }
    )


def pipeline(preset: str, workers: int, prefetch: int, **loader: Any) -> Pipeline:
    return build(scenario(preset, **loader), PRESETS[preset].options[0], 64.0, workers, prefetch)


def throughput(preset: str, workers: int, **loader: Any) -> float:
    tables = scenario(preset, **loader).to_dict() | {"accelerator": {"step": "10 us", "sync": "block"}}
    tables["workload"].pop("copy")
    return coresim.simulate(tables, workers=workers, cores=64).result.throughput_samples_per_s


@pytest.mark.parametrize("name", PRESETS)
def test_every_row_reads_back_and_says_how_it_was_checked(name: str) -> None:
    found, row = scenario(name), PRESETS[name]
    assert read_scenario(found.to_dict()) == found
    assert all(getattr(found.loader, key) == value for key, value in row.loader.items())
    assert row.checked in ("probe", "source", "documentation") and row.framework and row.how and row.limits
    assert row.options and "{" not in loader_settings(found, 3, 2).replace("{ prefetch", "")


def test_a_given_key_wins_over_the_preset() -> None:
    assert scenario("tf.data", ordered=False).loader.ordered is False
    assert read_scenario(scenario("tf.data", ordered=False).to_dict()).loader.ordered is False


def test_settings_are_the_framework_s_own() -> None:
    assert "num_parallel_calls=3" in loader_settings(scenario("tf.data"), 3, 2)
    assert loader_settings(scenario("caffe"), 1, 2) == "data_param { prefetch: 4 }"
    assert "prefetch_queue_depth=2" in loader_settings(scenario("dali"), 3, 1)


def test_threads_start_nothing_and_receive_nothing() -> None:
    threads, processes = pipeline("threads-free", 2, 1), build(scenario("pytorch"), 2, 64.0, 2, 1)
    assert threads.trainer.consumer.service.is_zero and threads.startup == 0.0
    assert not processes.trainer.consumer.service.is_zero and processes.startup == 2.0


def test_the_lock_bounds_threads_at_its_share_of_the_work() -> None:
    # 4 ms a sample of which the lock is held for half: 500 samples/s at the most, 250 from one thread.
    assert throughput("threads-gil", 8, gil=0.5, lock_passing=0.0) == pytest.approx(500, rel=0.02)
    assert throughput("threads-gil", 1, gil=0.5) == pytest.approx(250, rel=0.02)
    assert throughput("threads-free", 8) == pytest.approx(2000, rel=0.02)


def test_threads_that_pass_the_lock_on_lose_more_than_they_wait() -> None:
    # Passing adds 0.3 of the time held, in 7 of 8 turns of 8 threads; 1 thread passes it to nobody.
    for threads, rate in ((1, 250), (2, 250 / 1.15), (8, 250 / 1.2625)):
        assert throughput("threads-gil", threads, gil=1.0, lock_passing=0.3) == pytest.approx(rate, rel=0.02)


def test_processes_have_no_common_lock_and_the_staged_threads_of_the_same_job_have() -> None:
    job = scenario("pytorch", gil=0.5)
    assert build(job, 2, 64.0, 2, 1) == build(scenario("pytorch"), 2, 64.0, 2, 1)
    names = [stage.name for stage in build(job, 3, 64.0, 2).stages]
    assert names.index("interpreter") == names.index("preprocess") + 1
    assert "interpreter" not in [stage.name for stage in build(scenario("pytorch"), 3, 64.0, 2).stages]


def test_receiving_grows_with_the_senders() -> None:
    job = scenario("pytorch")
    job = replace(job, workload=replace(job.workload, consumer_growth=0.02))
    alone, many = (build(job, 2, 64.0, workers).trainer.consumer.service.mean for workers in (1, 51))
    assert alone == pytest.approx(job.workload.consumer.mean) and many == pytest.approx(2 * alone)


def test_receiving_takes_as_long_as_it_was_measured_to_with_so_many_workers() -> None:
    job = scenario("pytorch")
    job = replace(job, workload=replace(job.workload, consumer_by_workers=(1.0, 1.5, 0.5), consumer_growth=0.1))
    times = [build(job, 2, 64.0, workers).trainer.consumer.service.mean for workers in (1, 2, 3, 11)]
    assert times == pytest.approx([factor * job.workload.consumer.mean for factor in (1.0, 1.65, 0.6, 1.0)])


def test_workers_of_other_ranks_keep_cores_from_resting_unless_they_wait() -> None:
    job = scenario("pytorch")
    busy = replace(job.workload, consumer_by_workers=(1.0, 0.9, 0.8, 0.7), fetch=ZERO)
    half, waiting = (replace(busy, fetch=busy.preprocess.scaled(more)) for more in (0.5, 99.0))
    for workload, factors in ((busy, (1.0, 0.9, 0.7)), (half, (1.0, 1.0, 0.7)), (waiting, (1.0, 1.0, 1.0))):
        ranks = [replace(job.accelerator, count=count) for count in (1, 2, 8)]
        jobs = [replace(job, workload=workload, accelerator=device) for device in ranks]
        times = [build(job, 2, 64.0, 1).trainer.consumer.service.mean for job in jobs]
        assert times == pytest.approx([factor * job.workload.consumer.mean for factor in factors])


def test_dali_s_threads_share_each_batch() -> None:
    # 8 samples of 4 ms in 4 threads: 8 ms a batch; a fifth thread leaves one with two samples still.
    assert throughput("dali", 4) == pytest.approx(1000, rel=0.02)
    assert throughput("dali", 5) == pytest.approx(1000, rel=0.02)


def test_preprocessing_on_the_device_lengthens_its_step() -> None:
    tables = scenario("dali").to_dict()
    tables["workload"]["device_preprocess"] = "5 ms"
    assert build(read_scenario(tables), 2, 64.0, 4).step.service.mean == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("name", "cost"), [("offline", "preprocess=0.4 ms"), ("dali", "workload.device_preprocess=5 ms")]
)
def test_a_preset_of_other_work_is_answered_only_with_its_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, cost: str
) -> None:
    path = tmp_path / "job.toml"
    path.write_text('[workload]\nbatch_size = 8\npreprocess = "4 ms"\n[accelerator]\nstep = "20 ms"\n')
    for verb in ("recommend", "simulate", "whatif"):
        assert main([verb, str(path), "--preset", name]) == 2
        out, err = capsys.readouterr()
        assert out == "" and f"preset {name}: the input's costs are not those of" in err
        assert f"whatif --remedy {PRESETS[name].remedy} assumes" in err
    assert main(["report", str(path), "--set", f"loader.preset={name}", "-o", str(tmp_path / "r.md")]) == 2
    words = ["simulate", str(path), "--preset", name, "--workers", "2", "--cores", "3", "--steps", "20", "--engine"]
    assert main([*words, "reference", "--set", cost]) == 0
    # A file that names the preset itself gives its costs beside it.
    path.write_text(f'{path.read_text()}[loader]\npreset = "{name}"\n')
    assert main([*words, "reference"]) == 0
    assert PRESETS[name].remedy in {remedy.name for remedy in REMEDIES}


def test_caffe_has_one_worker() -> None:
    with pytest.raises(InputError, match="max_workers is 1"):
        coresim.simulate(scenario("caffe"), workers=2)


def test_library_threads_beyond_the_cores_cost_work_and_say_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    def work(threads: int, cores: float) -> float:
        found = build(scenario("pytorch", library_threads=threads), 2, cores, 4)
        return found.stages[0].phases[0].service.mean

    assert work(1, 2.0) == work(2, 8.0) == pytest.approx(0.004)
    assert work(2, 4.0) == pytest.approx(0.004 * (1 + 0.0625))


def test_the_verb_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in PRESETS)
    assert main(["presets", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["presets"]] == list(PRESETS)
    assert main(["presets", "tensorlow"]) == 2
    assert "use one of pytorch" in capsys.readouterr().err

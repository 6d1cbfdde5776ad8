"""Fleet plans: choices, resuming, other executors."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_kit import FLEET, JOB, host, job
from jsonschema import validate
from matplotlib.figure import Figure

import coresim
from coresim.advise.candidates import JobSetting
from coresim.advise.minimum_cores import minimum_cores
from coresim.advise.recommend import recommend
from coresim.advise.starved import BOUNDED, SEARCHED, SIMULATED, brief
from coresim.advise.sweep import Study, best_point, pipeline_of
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.fleet import plan as fleets
from coresim.fleet.description import Candidate, Fleet, FleetWorkload, load_fleet
from coresim.fleet.plan import FleetPlan, Row, plan_fleet
from coresim.fleet.task import FLEET_PLAN
from coresim.fleet.transfer import transfer
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import read_scenario
from coresim.report.fleet import PLAN, fleet_text
from coresim.report.results import ResultFile, read_results
from coresim.report.scheduler_requests import scheduler_requests
from coresim.report.schemas import schemas
from coresim.sim.draws import Draws
from coresim.sim.estimate import Plan, run_length
from coresim.sim.fast import simulate
from coresim.sim.run import Run, RunLength


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    """The plan of the fleet, simulated once for all that is compared with it."""
    folder = tmp_path_factory.mktemp("planned")
    (folder / "job.toml").write_text(JOB)
    (folder / "fleet.toml").write_text(FLEET)
    return plan_fleet(load_fleet(folder / "fleet.toml"))


@pytest.fixture
def finished(planned: FleetPlan, path: Path) -> Path:
    """A table with each of its pairs, beside the fleet's file: a plan that resumes from it simulates nothing."""
    table = path.parent / "finished.csv"
    ResultFile(table).finish(planned.rows)
    return table


# Carrying


# Cores needed


# Plans


def test_a_plan_by_hand() -> None:
    # GPU-bound at 64 / 100 ms = 640 samples/s; 100 GPU-hours are 230.4 million samples.
    free = FleetWorkload("free", read_scenario({
        "workload": {"batch_size": 64, "preprocess": "0.1 ms"}, "accelerator": {"step": "100 ms", "name": "A100"},
    }), 100.0, "A100", "EPYC 7742")  # fmt: skip
    dear, cheap = host("dear", "A100", price_per_h=6.4), host("cheap", "A100", price_per_h=1.6, gpu_count=2)
    plan = plan_fleet(Fleet((free,), (dear, host("unpriced", "A100"), cheap)))
    best = plan.pairs(free)
    assert [row.candidate.name for row in best] == ["cheap", "dear", "unpriced"]
    assert best[0].outcome.throughput == pytest.approx(1280, rel=0.02)
    assert best[1].price_per_million == pytest.approx(6.4 / (640 * 3600) * 1e6, rel=0.02)
    assert best[1].hours == pytest.approx(100, rel=0.02) and best[0].cost == pytest.approx(80, rel=0.02)
    assert best[0].stranded_cores == 2 * (16 - best[0].outcome.minimum_cores)
    mixes = plan.mixes()
    assert [mix.candidate.name for mix in mixes] == ["cheap", "dear", "unpriced"] and mixes[2].cost is None


def test_one_host_with_several_gpus_is_one_simulation() -> None:
    loaded = replace(job(), scenario=read_scenario({
        "workload": {"batch_size": 64, "preprocess": {"mean": "6 ms", "cv": 1.0}},
        "accelerator": {"step": {"mean": "100 ms", "cv": 0.3}, "name": "A100"},
    }))  # fmt: skip
    hosts = tuple(host(f"x{n}", None, gpu_count=n, cores_per_gpu=5.0) for n in (1, 8))
    one, eight = plan_fleet(Fleet((loaded,), hosts)).rows
    # Steps of unequal length wait for the slowest rank: more than a division by eight would show.
    assert eight.outcome.gpu_idle > one.outcome.gpu_idle + 0.05
    assert eight.outcome.throughput < 8 * one.outcome.throughput * 0.95


def test_a_site_gives_what_is_needed_up_to_its_cap(planned: FleetPlan) -> None:
    rows = {(row.workload.name, row.candidate.name): row for row in planned.rows}
    capped, free = rows["vision", "site x1"], rows["text", "site x2"]
    assert capped.outcome.minimum_cores <= 8 and capped.outcome.cores_had == capped.outcome.minimum_cores
    assert capped.price_per_h == pytest.approx(1.0 + 0.05 * capped.outcome.cores_had)
    assert free.stranded_cores == 0 and free.price_per_h == pytest.approx(2 * (1 + 0.05 * free.outcome.cores_had))
    assert {(u.workload.name, u.candidate.name) for u in planned.unknown} == {("text", "lambda:gpu_1x_h100_pcie")}
    starved = rows["vision", "lambda:gpu_1x_h100_pcie"]
    assert starved.outcome.cores_had == 13 and starved.outcome.gpu_idle_low <= starved.outcome.gpu_idle


def test_equal_inputs_are_one_task(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = []
    run = fleets.run_task
    monkeypatch.setattr(fleets, "run_task", lambda task: tasks.append(task) or run(task))
    twins = tuple(host(name, cores_per_gpu=cores) for name, cores in (("a", 8.0), ("b", 8.0), ("c", 12.0)))
    plan = plan_fleet(Fleet((job(),), twins))
    # And what is asked for on the best machine, which is another of the same inputs, is searched once.
    assert [(len(task.cores), task.searched) for task in tasks] == [(2, False), (1, True)] and len(plan.rows) == 3
    assert plan.rows[0].outcome == plan.rows[1].outcome and plan.rows[0].key == plan.rows[1].key != plan.rows[2].key


def test_what_does_not_meet_the_target_is_under_no_heading_that_says_so() -> None:
    # 6 ms x 64 a batch of 100 ms need 4 cores and the trainer's: two are cheap, and starve it.
    cheap, good = host("cheap", None, cores_per_gpu=2.0, price_per_h=0.1), host("good", None, price_per_h=9.0)
    plan = plan_fleet(Fleet((job(),), (cheap, good)))
    lines = fleet_text(plan).splitlines()
    heading, beyond = (next(at for at, line in enumerate(lines) if word in line)
                       for word in ("idle within 5.0 %: good", "idle beyond the target"))  # fmt: skip
    places = {
        name: next(at for at, line in enumerate(lines) if line.startswith(f"  {name} ")) for name in ("cheap", "good")
    }
    assert heading < places["good"] < beyond < places["cheap"]
    assert "ask for, on good (4 cores per GPU, nine in ten sure):" in fleet_text(plan)
    best = PLAN.write(plan, about={})["best"]["job"]
    assert (best["machine"], best["meets_target"]) == ("good", True)
    starved = fleet_text(plan_fleet(Fleet((job(),), (cheap,))))
    assert "job: 100 GPU-hours: no machine is idle within 5.0 %\n  idle beyond the target" in starved
    assert "idle within 5.0 %: " not in starved


def uncertain_job() -> FleetWorkload:
    tables = {
        "workload": {"batch_size": 64, "preprocess": {"mean": "6 ms", "cv": 0.4, "uncertainty": 0.2}},
        "accelerator": {"step": {"mean": "100 ms", "uncertainty": 0.1}, "name": "A100-SXM4-80GB"},
    }
    return job(scenario=read_scenario(tables))


def test_a_request_is_for_the_surer_count_where_the_machine_has_it_and_the_same_as_recommends() -> None:
    found = recommend(uncertain_job().scenario, Study(simulate), (2,))
    likely, sure = found.point.cores, found.sure.cores  # type: ignore[union-attr]
    # 0.95 x 384 ms in steps of 100 ms, and the trainer's: 3.9 cores; of one case in ten 1.33 times as many: 5.1.
    assert (likely, sure) == (4, 6)
    hosts = {"large": 32.0, "middle": float(likely), "small": 2.0}
    fleets = {name: Fleet((uncertain_job(),), (host(name, cores_per_gpu=cores),)) for name, cores in hosts.items()}
    fleets["site"] = Fleet((uncertain_job(),), (host("site", None, cores_per_gpu=None),))
    plans = {name: plan_fleet(fleet) for name, fleet in fleets.items()}
    rows = {name: plan.rows[0] for name, plan in plans.items()}
    assert {name: (row.outcome.minimum_cores, row.outcome.confidence) for name, row in rows.items()} == {
        "large": (sure, 0.9), "site": (sure, 0.9), "middle": (likely, 0.5), "small": (likely, 0.5),
    }  # fmt: skip
    assert rows["site"].outcome.cores_had == sure
    asked = {name: scheduler_requests(row)["slurm"] for name, row in rows.items()}
    assert [asked[name].rpartition("=")[2] for name in ("large", "site", "middle", "small")] == ["6", "6", "4", "2"]
    told = {name: " ".join(fleet_text(plan).split()) for name, plan in plans.items()}
    assert "ask for, on large (6 cores per GPU, nine in ten sure):" in told["large"]
    assert "4 (likely)" in told["middle"] and "(4 cores per GPU, within the target as likely as not):" in told["middle"]
    assert "ask for, on small (all the cores there are):" in told["small"]
    assert PLAN.write(plans["large"], about={})["best"]["job"]["confidence"] == 0.9
    # What a recommendation says of the setting, the plan says too.
    best = found.sure
    assert best is not None and rows["large"].outcome.provenance == SEARCHED
    assert (rows["large"].outcome.workers, rows["large"].outcome.gpu_idle) == (best.workers, best.estimate.gpu_idle)


def test_machines_that_are_not_the_best_have_nearly_the_same_count() -> None:
    hosts = (host("cheap", price_per_h=1.0), host("dear", None, cores_per_gpu=32.0, price_per_h=2.0))
    cheap, dear = plan_fleet(Fleet((uncertain_job(),), hosts)).rows
    assert (cheap.outcome.provenance, dear.outcome.provenance) == (SEARCHED, SIMULATED)
    assert cheap.outcome.minimum_cores == 6 and dear.outcome.minimum_cores in (5, 6)
    assert cheap.outcome.confidence == dear.outcome.confidence == 0.9


def test_another_confidence_is_another_count() -> None:
    fleet = Fleet((uncertain_job(),), (host(cores_per_gpu=32.0),))
    rows = [plan_fleet(fleet, confidence=share).rows[0] for share in (0.5, 0.75, 0.9)]
    counts = [row.outcome.minimum_cores for row in rows]
    assert counts == sorted(set(counts)) and len({row.key for row in rows}) == 3
    with pytest.raises(InputError, match="confidence = 1"):
        plan_fleet(fleet, confidence=1.0)


def test_a_request_is_searched_with_the_seed_that_is_given() -> None:
    fleet, highs = Fleet((uncertain_job(),), (host(cores_per_gpu=32.0),)), set()
    for seed in (1, 5):
        found = recommend(uncertain_job().scenario, Study(simulate, Plan(seed=seed)), (2,)).sure
        outcome = plan_fleet(fleet, plan=replace(FLEET_PLAN, seed=seed)).rows[0].outcome
        assert found is not None and outcome.provenance == SEARCHED
        assert (outcome.minimum_cores, outcome.gpu_idle_high) == (found.cores, found.estimate.gpu_idle_high)
        highs.add(outcome.gpu_idle_high)
    assert len(highs) == 2


def test_where_no_core_count_will_do_none_is_sure(tmp_path: Path) -> None:
    slow = read_scenario({
        "workload": {"batch_size": 64, "preprocess": "1 ms", "consumer": "80 ms"},
        "accelerator": {"step": "50 ms", "name": "A100"},
    })  # fmt: skip
    plan = plan_fleet(Fleet((job(scenario=slow),), (host(gpu="A100"),)))
    outcome = plan.rows[0].outcome
    assert (outcome.minimum_cores, outcome.confidence) == (None, None)
    document = PLAN.write(plan, about={})
    assert document["best"]["job"]["confidence"] is None and document["rows"][0]["confidence"] is None
    validate(document, schemas()["plan"])
    assert "none will do" in fleet_text(plan) and "(all the cores there are):" in fleet_text(plan)
    table = tmp_path / "pairs.csv"
    ResultFile(table).finish(plan.rows)
    assert read_results(table) == {plan.rows[0].key: outcome}
    # A line with a count and no confidence is none of ours.
    known = replace(plan.rows[0], outcome=replace(outcome, minimum_cores=4))
    ResultFile(table).finish([known])
    assert read_results(table) == {}


# What to ask for


# Resuming, executors


class Stop(Exception):
    pass


def test_a_stopped_plan_goes_on_where_it_was(
    path: Path, planned: FleetPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, table = load_fleet(path), tmp_path / "pairs.csv"
    results, count = ResultFile(table), 0

    def save(row: Row) -> None:
        nonlocal count
        results.append(row)
        count += 1
        if count == 3:
            raise Stop

    with pytest.raises(Stop):
        plan_fleet(fleet, save=save)
    with table.open("a") as stream:
        stream.write("0123,text,aws:p4d")  # cut off in the middle of a line
    kept = ResultFile(table).done
    assert len(kept) == 3
    saved: list[str] = []
    whole = plan_fleet(fleet, done=kept, save=lambda row: saved.append(row.key))
    assert not set(saved) & set(kept) and whole == planned
    ResultFile(table).finish(whole.rows)
    assert read_results(table) == {row.key: row.outcome for row in whole.rows}
    monkeypatch.setattr(fleets, "run_task", lambda task: pytest.fail("nothing is left to simulate"))
    assert str(coresim.plan(path, results=table)) == str(coresim.plan(path, results=table))


def test_the_key_changes_with_what_the_outcome_depends_on() -> None:
    def key(workload: FleetWorkload, candidate: Candidate, plan: Plan = FLEET_PLAN) -> str:
        return fleets._Schedule(Fleet((workload,), (candidate,)), plan, "fast", {}, 0.9).cells[0].key

    first = key(job(), host())
    assert key(job(name="renamed"), host("renamed", price_per_h=3.0)) == first
    faster = job(scenario=read_scenario({**job().scenario.to_dict(), "accelerator": {"step": "90 ms"}}))
    others = (key(faster, host()), key(job(), host(cores_per_gpu=8.0)), key(job(), host(gpu_count=2)))
    seeded = key(job(), host(), replace(FLEET_PLAN, seed=2))
    assert len({first, *others, seeded, key(job(), host(cpu="other"))}) == 6


def test_any_executor_gives_the_same(path: Path, planned: FleetPlan) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert plan_fleet(load_fleet(path), executor=executor) == planned


def test_a_cluster_that_loses_a_worker_gives_the_same(path: Path, planned: FleetPlan) -> None:
    distributed = pytest.importorskip("distributed")
    fleet, killed = load_fleet(path), []
    settings = {"n_workers": 3, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    patience = pytest.importorskip("dask").config.set({"distributed.comm.timeouts.connect": "200s"})
    with patience, distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        assert len(set(pids)) == 3 and os.getpid() not in pids

        def save(row: Row) -> None:
            if not killed:
                os.kill(pids[0], signal.SIGKILL)
                killed.append(pids[0])

        found = plan_fleet(fleet, executor=client.get_executor(), save=save)
    assert killed and found == planned


# Files and the verb


def test_the_verb(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "pairs.csv"
    assert main(["plan", str(path), "--jobs", "1", "--results", str(table)]) == 0
    text = capsys.readouterr().out
    assert (
        "Whole mix (2 workloads)" in text and "#SBATCH --cpus-per-gpu=" in text and "not predicted on 1 machine" in text
    )
    assert re.search(r"transferred unchanged from a CPU that is not named", text)
    assert len(table.read_text().splitlines()) == 1 + 9
    assert main(["plan", str(path), "--jobs", "1", "--results", str(table), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]) == 9 and document["best"]["vision"]["ask_for"]["slurm"].startswith("#SBATCH")
    assert main(["plan", str(path), "--results", str(path)]) == 2
    assert "not a table of coresim plan" in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_finished(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, run, armed = tmp_path / "pairs.csv", fleets.run_task, True

    def interrupted(task: fleets.Task) -> object:
        if armed and len(table.read_text().splitlines()) > 2:
            raise KeyboardInterrupt
        return run(task)

    monkeypatch.setattr(fleets, "run_task", interrupted)
    assert main(["plan", str(path), "--jobs", "1", "--results", str(table)]) == 130
    assert f"{table} keeps what is finished" in capsys.readouterr().err and len(read_results(table)) >= 2
    armed = False
    assert main(["plan", str(path), "--jobs", "1", "--results", str(table)]) == 0
    assert len(read_results(table)) == 9


def test_parquet_holds_the_same_table(path: Path, finished: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ["--jobs", "1", "--results", str(finished), "--parquet", str(tmp_path / "p.parquet")]
    assert main(["plan", str(path), *words]) == 0
    found = parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert found["key"] == coresim.plan(path, results=finished).to_frame()["key"].tolist()


def test_an_absent_scheduler_is_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", str(path), "--scheduler", "nonsense"])
    assert code in (2, 3) and len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_plan_draws_itself(path: Path, finished: Path) -> None:
    plan = coresim.plan(path, results=finished)
    axes = plan.plot(Figure().subplots())
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [mix.candidate.name for mix in plan.result.mixes()]
    assert "(%)" in axes.get_xlabel()
    vision = plan.result.fleet.workloads[0]
    shown = {float(x) for x in axes.containers[0].lines[0].get_xdata()}
    wanted = {100 * row.outcome.gpu_idle for row in plan.result.pairs(vision) if row.candidate.name in names}
    assert axes.containers[0].get_label() == vision.name and shown == wanted


# Short runs, and hosts that are far from the target


def starved(gpus: int, option: int, cores: float) -> tuple[Row, Row]:
    """The row of a fleet plan, and the same pair with every input simulated in long runs."""
    tables = {
        "workload": {
            "batch_size": 64,
            "preprocess": {"mean": "12 ms", "cv": 0.4, "uncertainty": 0.15},
            "collate": "2 ms",
            "consumer": {"mean": "2 ms", "uncertainty": 0.05},
        },
        "accelerator": {"step": {"mean": "100 ms", "uncertainty": 0.1}, "launch": "4 ms", "name": "A100"},
        "host": {"speed": [1.0, 0.95], "speed_uncertainty": 0.05},
    }
    work = FleetWorkload("job", read_scenario(tables), 100.0, "A100", "EPYC 7742")
    fleet = Fleet((work,), (host("box", "A100", gpu_count=gpus, cores_per_gpu=cores),), (option,))
    (row,) = plan_fleet(fleet).rows
    scenario = replace(work.scenario, accelerator=replace(work.scenario.accelerator, count=gpus))
    plan = Plan(steps=600, least=3, most=3, inputs=24)
    point = best_point(scenario, option, cores, Study(simulate, plan))
    found = replace(row.outcome, gpu_idle=point.estimate.gpu_idle, gpu_idle_low=point.estimate.gpu_idle_low,
                    gpu_idle_high=point.estimate.gpu_idle_high)  # fmt: skip
    return row, replace(row, outcome=found)


@pytest.mark.parametrize(("gpus", "option", "cores"), [(1, 2, 4.0), (4, 2, 3.0), (1, 3, 5.0), (1, 1, 8.0), (4, 1, 2.0)])
def test_far_from_the_target_the_interval_is_that_of_simulated_inputs(gpus: int, option: int, cores: float) -> None:
    row, long = starved(gpus, option, cores)
    assert row.outcome.provenance == BOUNDED and row.outcome.gpu_idle > 0.3
    assert row.outcome.gpu_idle == pytest.approx(long.outcome.gpu_idle, abs=0.02)
    width, wanted = (r.outcome.gpu_idle_high - r.outcome.gpu_idle_low for r in (row, long))
    # Wider, if anything: of two short runs the noise is known but roughly.
    assert 0.03 < wanted < width < 2 * wanted


def test_near_the_target_inputs_are_simulated() -> None:
    fleet = Fleet((job(),), (host(cores_per_gpu=64.0), host("less", cores_per_gpu=2.0)))
    near, far = plan_fleet(fleet).rows
    assert near.meets_target and (near.outcome.provenance, far.outcome.provenance) == (SEARCHED, BOUNDED)


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_gpus_share_the_steps_of_a_window(gpus: int) -> None:
    device = replace(job().scenario.accelerator, count=gpus)
    pipeline = pipeline_of(JobSetting(replace(job().scenario, accelerator=device), 2, 8, 12, 2))
    plan = FLEET_PLAN
    whole, short = run_length(pipeline, plan), run_length(pipeline, brief(plan, pipeline))
    steps = gpus * (short.steps - short.warm_up)
    assert whole.steps - whole.warm_up <= steps + gpus * 12
    assert (short.steps < whole.steps) == (gpus > 1)
    # The line is filled: every credit is used once.
    assert short.warm_up >= 12 * 2


def test_workers_that_a_bound_forbids_are_not_simulated() -> None:
    seen = []

    def engine(pipeline: Pipeline, draws: Draws, length: RunLength) -> Run:
        seen.append(pipeline)
        return simulate(pipeline, draws, length)

    tables = {"workload": {"batch_size": 64, "preprocess": "6 ms"}, "accelerator": {"step": "100 ms"}}
    scenario = read_scenario(tables)
    found = minimum_cores(scenario, 2, Study(engine, Plan(steps=120, least=1, most=1, inputs=0)))
    assert found is not None and found.cores == 4
    # 384 ms of work for a step of 100 ms: three workers cannot, so that four are the first to be tried.
    assert seen and min(pipeline.stages[0].servers for pipeline in seen) >= 4


def test_memory_is_the_other_machine_s_and_so_is_what_it_misses() -> None:
    tables = {
        "workload": {"batch_size": 8, "preprocess": "4 ms", "sample_bytes": 1e5, "dataset_bytes": 100e9},
        "accelerator": {"step": "20 ms"},
        "host": {"memory_bytes": 50e9, "shm_bytes": 64e6, "storage": "s3"},
    }
    base = read_scenario(tables)
    found = {
        size: transfer(job(scenario=base), host(memory_bytes=size), {}).scenario(base) for size in (10e9, 50e9, 200e9)
    }
    assert [found[size].host.memory_bytes for size in found] == list(found)
    assert all(scenario.host.shm_bytes is None for scenario in found.values())
    waits = [scenario.workload.fetch.mean for scenario in found.values()]
    assert waits[0] > waits[1] > waits[2] == 0.0 and waits[1] == pytest.approx(base.workload.fetch.mean)
    # A time that is given stays, whatever the memory.
    tables["workload"] |= {"fetch": "3 ms"}
    given = read_scenario(tables)
    assert transfer(job(scenario=given), host(memory_bytes=200e9), {}).scenario(given).workload.fetch.mean == 0.003


def test_machines_that_differ_in_memory_alone_keep_their_own() -> None:
    tables = {
        "workload": {"batch_size": 8, "preprocess": "4 ms", "sample_bytes": 1e5, "dataset_bytes": 100e9},
        "accelerator": {"step": "20 ms"},
        "host": {"memory_bytes": 50e9, "storage": "s3"},
    }
    hosts = tuple(host(name, memory_bytes=size) for name, size in (("small", 10e9), ("large", 200e9)))
    book = fleets._Schedule(Fleet((job(scenario=read_scenario(tables)),), hosts), FLEET_PLAN, "fast", {}, 0.9)
    kept = {cell.transferred.memory_bytes for cell in book.cells}
    assert kept == {10e9, 200e9} and len({cell.key for cell in book.cells}) == len(book.cells)


def test_machines_that_are_left_out_are_counted(path: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(path), "--jobs", "1", "--results", str(finished), "--top"]
    assert main([*words, "1"]) == 0
    whole, vision, text = capsys.readouterr().out.split("\n\n")[:3]
    # Three machines and a site of two sizes; the H100 has no step time for the second workload.
    assert "  4 more: --top 5 shows all" in vision.splitlines()
    assert "  3 more: --top 4 shows all" in text.splitlines() and "  3 more: --top 4 shows all" in whole.splitlines()
    assert main([*words, "5"]) == 0
    assert " more: --top" not in capsys.readouterr().out

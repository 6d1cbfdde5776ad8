"""Cli, model, sim and advise: the three options by hand, as pipelines whose times a pencil gives."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from coresim.cli.main import main

Json = dict[str, Any]
EXACT = 1e-6

# A batch has 10 samples, so that 1 ms per sample is 10 ms per batch. Without a word on it, the device takes 2 ms per
# step and waiting for it frees the core (``sync = "block"``), so that only the workers need cores.

# Sections and keys, as a scenario file has them.
PLAIN: Json = {
    "workload": {"batch_size": 10, "preprocess": "1 ms"},
    "accelerator": {"step": "2 ms", "sync": "block"},
}
# Every cost of a step at once: 5 + 10 + 2 ms of loading, 1 ms to receive, 3 ms to copy, 20 ms on the device.
FULL: Json = {
    "workload": {
        "batch_size": 10,
        "fetch": "0.5 ms",
        "preprocess": "1 ms",
        "collate": "2 ms",
        "consumer": "1 ms",
        "copy": "3 ms",
    },
    "accelerator": {"step": "20 ms", "launch": "4 ms"},
}


def toml(tables: Json, extra: str = "") -> str:
    lines = []
    for section, keys in tables.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
    return "\n".join(lines) + "\n" + extra


class Tool:
    """The command line, with a folder for its scenarios and what it printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def scenario(self, tables: Json, changes: dict[str, Any] | None = None, extra: str = "") -> str:
        changed = {section: dict(keys) for section, keys in tables.items()}
        for name, value in (changes or {}).items():
            section, key = name.split(".")
            changed.setdefault(section, {})[key] = value
        path = self.folder / f"scenario{len(list(self.folder.iterdir()))}.toml"
        path.write_text(toml(changed, extra))
        return str(path)

    def run(self, *words: object) -> tuple[int, Json]:
        self.capsys.readouterr()
        code = main([str(word) for word in words])
        return code, json.loads(self.capsys.readouterr().out)

    def simulate(self, path: str, *words: object) -> Json:
        code, answer = self.run("simulate", path, "--json", *words)
        assert code == 0
        return answer

    def recommend(self, path: str, *words: object) -> tuple[int, Json]:
        return self.run("recommend", path, "--json", *words)


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(tmp_path, capsys)


def check(answer: Json, idle: float, per_s: float, makespan: float | None = None) -> None:
    assert answer["gpu_idle"] == pytest.approx(idle, abs=EXACT)
    assert answer["accelerator_utilisation"] == pytest.approx(1 - idle, abs=EXACT)
    assert answer["throughput_samples_per_s"] == pytest.approx(per_s, rel=EXACT)
    assert answer["gpu_idle_low"] <= answer["gpu_idle"] + EXACT
    assert answer["gpu_idle_high"] >= answer["gpu_idle"] - EXACT
    if makespan is not None:
        assert answer["makespan_s"] == pytest.approx(makespan, rel=EXACT)


def station(answer: Json, name: str) -> Json:
    found = [row for row in answer["stations"] if row["name"] == name]
    assert len(found) == 1, [row["name"] for row in answer["stations"]]
    return found[0]


# Option 1: every part of a step after the other.


@pytest.mark.parametrize(
    ("launch", "period"),
    [("0 ms", 40), ("4 ms", 40), ("20 ms", 40), ("30 ms", 50)],
)
def test_option_1_adds_all_costs_but_the_consumer(tool: Tool, launch: str, period: int) -> None:
    # fetch 5 + preprocess 10 + collate 2 + copy 3 + max(launch, step 20).
    path = tool.scenario(FULL, {"accelerator.launch": launch})
    answer = tool.simulate(path, "--option", 1, "--cores", 1, "--steps", 100)
    check(answer, 1 - 20 / period, 10_000 / period, period / 10)


def test_option_1_gains_nothing_from_cores(tool: Tool) -> None:
    path = tool.scenario(FULL)
    one, many = (tool.simulate(path, "--option", 1, "--cores", cores, "--steps", 50) for cores in (1, 8))
    assert one["gpu_idle"] == pytest.approx(many["gpu_idle"], abs=EXACT)
    assert one["makespan_s"] == pytest.approx(many["makespan_s"], rel=EXACT)


def test_no_workers_is_option_1(tool: Tool) -> None:
    answer = tool.simulate(tool.scenario(FULL), "--option", 2, "--workers", 0, "--cores", 1, "--steps", 50)
    check(answer, 0.5, 250, 2.0)


def test_option_1_on_slow_cores(tool: Tool) -> None:
    # s(1) = 0.5 doubles preprocess and collate (12 -> 24 ms); fetching needs no core; launch 8 < step 20.
    path = tool.scenario(FULL, {"host.speed": [0.5], "workload.copy": "0 ms"})
    answer = tool.simulate(path, "--option", 1, "--cores", 1, "--steps", 50)
    check(answer, 1 - 20 / (5 + 24 + 20), 10_000 / 49, 50 * 0.049)


# Option 2: DataLoader workers.


def test_option_2_one_worker_limits(tool: Tool) -> None:
    # A batch every 10 ms; the last of 40 comes at 400 ms and is trained for 2 ms.
    answer = tool.simulate(tool.scenario(PLAIN), "--workers", 1, "--cores", 2, "--steps", 40)
    check(answer, 0.8, 1000, 0.402)
    assert station(answer, "loader")["utilisation"] == pytest.approx(1, abs=EXACT)


def test_option_2_data_stall_is_the_time_without_a_batch(tool: Tool) -> None:
    # Of each 10 ms, 8 ms without a batch; the first batch alone has no step before it (10 ms).
    answer = tool.simulate(tool.scenario(PLAIN), "--workers", 1, "--cores", 2, "--steps", 1000)
    assert answer["data_stall_s"] == pytest.approx(0.8 * answer["makespan_s"], rel=0.01)


def test_option_2_workers_come_in_bursts(tool: Tool) -> None:
    # Four workers deliver together at 10, 20, ..., 100 ms; the last burst of four trains until 108 ms.
    answer = tool.simulate(tool.scenario(PLAIN), "--workers", 4, "--cores", 5, "--steps", 40)
    check(answer, 0.2, 4000, 0.108)


def test_option_2_trainer_limits(tool: Tool) -> None:
    # consumer 1 + copy 3 + max(launch 4, step 20) = 24 ms; the first batch is ready after 17 ms.
    answer = tool.simulate(tool.scenario(FULL), "--workers", 4, "--cores", 8, "--steps", 100)
    check(answer, 1 - 20 / 24, 10_000 / 24, 0.017 + 100 * 0.024)
    loader = station(answer, "loader")
    # A worker has 4 x 24 ms for 17 ms of work.
    assert loader["utilisation"] == pytest.approx(17 / 96, abs=1e-4)
    assert answer["data_stall_s"] == pytest.approx(0, abs=EXACT)


def test_option_2_launch_longer_than_the_step(tool: Tool) -> None:
    path = tool.scenario(PLAIN, {"accelerator.launch": "5 ms"})
    answer = tool.simulate(path, "--workers", 8, "--cores", 16, "--steps", 100)
    check(answer, 1 - 2 / 5, 2000, 0.010 + 100 * 0.005)


def test_option_2_fewer_cores_than_workers(tool: Tool) -> None:
    # Four workers on two cores: each at half speed, four batches every 20 ms.
    answer = tool.simulate(tool.scenario(PLAIN), "--workers", 4, "--cores", 2, "--steps", 40)
    check(answer, 0.6, 2000, 0.208)


@pytest.mark.parametrize(
    ("sync", "period"),
    # Spinning for 2 ms leaves the worker half of the core: 1 ms of its 10 ms done, 9 ms to go.
    [("block", 10), ("spin", 11)],
)
def test_spinning_takes_from_the_worker_of_the_same_core(tool: Tool, sync: str, period: int) -> None:
    path = tool.scenario(PLAIN, {"accelerator.sync": sync})
    answer = tool.simulate(path, "--workers", 1, "--cores", 1, "--steps", 400)
    check(answer, 1 - 2 / period, 10_000 / period)


def test_spin_is_the_default(tool: Tool) -> None:
    path = tool.scenario({"workload": PLAIN["workload"], "accelerator": {"step": "2 ms"}})
    check(tool.simulate(path, "--workers", 1, "--cores", 1), 1 - 2 / 11, 10_000 / 11)


def test_spinning_costs_nothing_on_a_core_of_its_own(tool: Tool) -> None:
    path = tool.scenario(PLAIN, {"accelerator.sync": "spin"})
    check(tool.simulate(path, "--workers", 1, "--cores", 2, "--steps", 40), 0.8, 1000, 0.402)


def test_busy_cores_slow_one_another(tool: Tool) -> None:
    # Two workers at 0.8 of their speed: two batches every 12.5 ms.
    path = tool.scenario(PLAIN, {"host.speed": [1.0, 0.8]})
    answer = tool.simulate(path, "--workers", 2, "--cores", 4, "--steps", 40)
    check(answer, 1 - 4 / 12.5, 20_000 / 12.5, 20 * 0.0125 + 0.004)
    one = tool.simulate(path, "--workers", 1, "--cores", 4, "--steps", 40)
    check(one, 0.8, 1000, 0.402)


def test_busy_cores_are_never_more_than_there_are(tool: Tool) -> None:
    # Four runnable workers on two cores run at s(2) = 0.8, not at s(4) = 0.1.
    path = tool.scenario(PLAIN, {"host.speed": [1.0, 0.8, 0.4, 0.1]})
    answer = tool.simulate(path, "--workers", 4, "--cores", 2, "--steps", 40)
    check(answer, 1 - 8 / 25, 40_000 / 25, 10 * 0.025 + 0.008)


def test_a_spinning_trainer_is_a_busy_core(tool: Tool) -> None:
    # Two workers, two steps of 4 ms per round: 8 ms of it three tasks share two cores: 16 / 3 of 10 ms done.
    path = tool.scenario(PLAIN, {"accelerator.step": "4 ms", "accelerator.sync": "spin"})
    round_s = 0.008 + 0.010 - 0.016 / 3
    check(tool.simulate(path, "--workers", 2, "--cores", 2, "--steps", 40), 1 - 0.008 / round_s, 20 / round_s)


def test_a_spinning_trainer_takes_no_memory_bandwidth_from_the_workers(tool: Tool) -> None:
    # On three cores, of which the workers have two; three that move memory would be at half speed.
    path = tool.scenario(PLAIN, {"accelerator.step": "4 ms", "accelerator.sync": "spin", "host.speed": [1.0, 1.0, 0.5]})
    check(tool.simulate(path, "--workers", 2, "--cores", 3, "--steps", 40), 1 - 8 / 10, 20_000 / 10)
    # On two cores, they have four thirds of one for 8 ms, at 5 / 6 of the speed, and then both, at half.
    path = tool.scenario(PLAIN, {"accelerator.step": "4 ms", "accelerator.sync": "spin", "host.speed": [1.0, 0.5]})
    round_s = 0.008 + (0.010 - 0.008 * (5 / 6) * (2 / 3)) / 0.5
    check(tool.simulate(path, "--workers", 2, "--cores", 2, "--steps", 40), 1 - 0.008 / round_s, 20 / round_s)


def test_fetching_holds_no_core(tool: Tool) -> None:
    # One core: four workers fetch 10 ms side by side, then share the core for 4 x 1 ms: four batches per 14 ms.
    path = tool.scenario(PLAIN, {"workload.fetch": "1 ms", "workload.preprocess": "0.1 ms"})
    answer = tool.simulate(path, "--workers", 4, "--cores", 1, "--steps", 40)
    check(answer, 1 - 8 / 14, 40_000 / 14, 10 * 0.014 + 0.008)


def test_fetching_is_not_slowed_by_busy_cores(tool: Tool) -> None:
    # Half speed doubles the 1 ms on the core alone.
    path = tool.scenario(PLAIN, {"workload.fetch": "1 ms", "workload.preprocess": "0.1 ms", "host.speed": [0.5]})
    check(tool.simulate(path, "--workers", 1, "--cores", 2, "--steps", 40), 1 - 2 / 12, 10_000 / 12, 40 * 0.012 + 0.002)


def test_an_epoch_starts_with_empty_queues(tool: Tool) -> None:
    # Four batches per epoch: 10 ms to make all of them, 8 ms to train; nothing of the next epoch before that.
    path = tool.scenario(PLAIN, {"workload.samples_per_epoch": 40})
    check(tool.simulate(path, "--workers", 4, "--cores", 4, "--steps", 40), 1 - 8 / 18, 40_000 / 18, 10 * 0.018)


def test_samples_with_a_spread_keep_their_mean(tool: Tool) -> None:
    # One worker is the pace: 10 x 2 ms per batch on average.
    spreads: list[Any] = [
        '{ values = ["1 ms", "3 ms"] }',
        '{ mean = "2 ms", distribution = "exponential" }',
        '{ mean = "2 ms", cv = 0.5, distribution = "gamma" }',
        '{ mean = "2 ms", cv = 0.5, distribution = "lognormal" }',
    ]
    for spread in spreads:
        path = tool.scenario(PLAIN)
        text = Path(path).read_text().replace('preprocess = "1 ms"', f"preprocess = {spread}")
        Path(path).write_text(text)
        answer = tool.simulate(path, "--workers", 1, "--cores", 1, "--steps", 2000)
        assert answer["gpu_idle"] == pytest.approx(0.9, abs=0.002), spread
        assert answer["throughput_samples_per_s"] == pytest.approx(500, rel=0.015), spread
        assert answer["gpu_idle_low"] < answer["gpu_idle"] < answer["gpu_idle_high"], spread


def test_a_shared_queue_without_order_keeps_fast_workers_at_work(tool: Tool) -> None:
    # Heavy tails: a slow batch holds up the ordered round robin, never the shared unordered queue.
    path = tool.scenario(PLAIN)
    spread = '{ mean = "1 ms", cv = 4.0, distribution = "lognormal" }'
    Path(path).write_text(Path(path).read_text().replace('preprocess = "1 ms"', f"preprocess = {spread}"))
    words = ["--workers", 5, "--cores", 6, "--steps", 1000]
    strict = tool.simulate(path, *words)
    loose = tool.simulate(path, *words, "--set", "loader.dispatch=shared", "--set", "loader.ordered=false")
    assert loose["throughput_samples_per_s"] > 1.02 * strict["throughput_samples_per_s"]


# Option 3: stages joined by queues.


def test_option_3_trainer_only_trains(tool: Tool) -> None:
    # consumer and copy are behind the trainer's back: a step every 20 ms. First batch: 0.5 (ten fetches at once, given
    # enough fetchers) + 10 + 2 + 1 + 3 ms.
    path = tool.scenario(FULL, {"loader.fetchers": 10})
    answer = tool.simulate(path, "--option", 3, "--workers", 4, "--cores", 8, "--steps", 100)
    check(answer, 0, 500, 0.0165 + 100 * 0.020)


@pytest.mark.parametrize("launch", [25, 40])
def test_option_3_launch_is_left_in_the_trainer(tool: Tool, launch: int) -> None:
    path = tool.scenario(FULL, {"accelerator.launch": f"{launch} ms"})
    answer = tool.simulate(path, "--option", 3, "--workers", 4, "--cores", 8, "--steps", 100)
    check(answer, 1 - 20 / launch, 10_000 / launch)


def test_option_3_one_worker_limits(tool: Tool) -> None:
    answer = tool.simulate(tool.scenario(PLAIN), "--option", 3, "--workers", 1, "--cores", 2, "--steps", 40)
    check(answer, 0.8, 1000, 0.402)


@pytest.mark.parametrize(("cores", "period", "makespan"), [(5, 2.5, 0.108), (4, 2.5, 0.108), (2, 5.0, 0.208)])
def test_option_3_workers_share_cores(tool: Tool, cores: int, period: float, makespan: float) -> None:
    path = tool.scenario(PLAIN)
    short = tool.simulate(path, "--option", 3, "--workers", 4, "--cores", cores, "--steps", 40)
    assert short["makespan_s"] == pytest.approx(makespan, rel=EXACT)
    # Over many bursts of four, the part of a burst at the edge of what is counted does not matter.
    long = tool.simulate(path, "--option", 3, "--workers", 4, "--cores", cores, "--steps", 4000)
    assert long["gpu_idle"] == pytest.approx(1 - 2 / period, abs=1e-3)
    assert long["throughput_samples_per_s"] == pytest.approx(10_000 / period, rel=1e-3)


def test_option_3_slow_copy_thread(tool: Tool) -> None:
    path = tool.scenario(FULL, {"workload.copy": "25 ms", "workload.consumer": "0 ms"})
    answer = tool.simulate(path, "--option", 3, "--workers", 4, "--cores", 8, "--steps", 100)
    check(answer, 0.2, 400)
    assert station(answer, "copy")["utilisation"] == pytest.approx(1, abs=EXACT)
    assert station(answer, "preprocess")["blocked"] > 0.5


@pytest.mark.parametrize(
    ("batch", "fetchers", "period"),
    # 4 ms per fetch: batch / fetchers x 4 ms, on no core.
    [(8, 4, 8), (10, 4, 10), (10, 5, 8), (1, 1, 4), (10, 1, 40)],
)
def test_option_3_fetches_in_flight(tool: Tool, batch: int, fetchers: int, period: int) -> None:
    path = tool.scenario(
        PLAIN,
        {
            "workload.batch_size": batch,
            "workload.fetch": "4 ms",
            "workload.preprocess": "0.01 ms",
            "loader.fetchers": fetchers,
        },
    )
    answer = tool.simulate(path, "--option", 3, "--workers", 2, "--cores", 1, "--steps", 200)
    check(answer, 1 - 2 / period, 1000 * batch / period)
    assert station(answer, "fetch")["utilisation"] == pytest.approx(1, abs=1e-3)
    assert station(answer, "preprocess")["starved"] > 0.9


# Stages of one's own.


def stage(name: str, service: str, servers: int, grain: str = "batch", core: bool = True) -> str:
    rows = {"name": name, "service": service, "servers": servers, "grain": grain, "holds_core": core}
    return "[[stage]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in rows.items()) + "\n"


STAGED: Json = {"workload": {"batch_size": 10}, "accelerator": {"step": "2 ms", "sync": "block"}}


@pytest.mark.parametrize(
    ("stages", "cores", "period"),
    [
        ([stage("decode", "10 ms", 2)], 4, 5),
        ([stage("decode", "10 ms", 2)], 1, 10),
        ([stage("decode", "10 ms", 2, core=False)], 1, 5),
        ([stage("decode", "1 ms", 2, grain="sample")], 4, 5),
        ([stage("decode", "10 ms", 2), stage("augment", "8 ms", 1)], 4, 8),
        ([stage("decode", "10 ms", 2), stage("augment", "8 ms", 1)], 1, 18),
        ([stage("read", "30 ms", 3, core=False), stage("augment", "8 ms", 1)], 1, 10),
    ],
)
def test_stages_by_hand(tool: Tool, stages: list[str], cores: int, period: float) -> None:
    path = tool.scenario(STAGED, extra="".join(stages))
    answer = tool.simulate(path, "--option", 3, "--workers", 1, "--cores", cores, "--steps", 2000)
    assert answer["gpu_idle"] == pytest.approx(1 - 2 / period, abs=1e-3)
    assert answer["throughput_samples_per_s"] == pytest.approx(10_000 / period, rel=2e-3)


# Both engines.

NOISY = """
[workload]
batch_size = 10
preprocess = { mean = "1 ms", cv = 0.7, distribution = "gamma" }
fetch = { mean = "1 ms", distribution = "exponential" }
collate = "1 ms"
consumer = "0.1 ms"
copy = "0.2 ms"
[accelerator]
step = { mean = "2 ms", cv = 0.1, distribution = "lognormal" }
launch = "0.5 ms"
[host]
speed = [1.0, 0.95, 0.8]
"""


@pytest.mark.parametrize("option", [1, 2, 3])
def test_engines_agree_on_the_command_line(tool: Tool, option: int) -> None:
    path = tool.folder / "noisy.toml"
    path.write_text(NOISY)
    words = ["--option", option, "--workers", 4, "--cores", 3, "--steps", 40, "--replications", 2, "--seed", 5]
    fast, reference = (tool.simulate(str(path), *words, "--engine", engine) for engine in ("fast", "reference"))
    for name in ("gpu_idle", "gpu_idle_low", "gpu_idle_high", "throughput_samples_per_s", "makespan_s", "data_stall_s"):
        assert fast[name] == pytest.approx(reference[name], rel=1e-9, abs=1e-12), name
    for one, other in zip(fast["stations"], reference["stations"], strict=True):
        for name in ("utilisation", "blocked", "starved"):
            assert one[name] == pytest.approx(other[name], rel=1e-9, abs=1e-9), (one["name"], name)


def test_seed_decides_the_draws(tool: Tool) -> None:
    path = tool.folder / "noisy.toml"
    path.write_text(NOISY)
    words = ["--workers", 4, "--cores", 3, "--steps", 100]
    first, again, other = (tool.simulate(str(path), *words, "--seed", seed) for seed in (1, 1, 2))
    assert first["makespan_s"] == again["makespan_s"]
    assert first["makespan_s"] != other["makespan_s"]


# Recommending.


@pytest.mark.parametrize("cores", [1, 2, 3, 5, 8])
def test_recommend_finds_the_exact_count(tool: Tool, cores: int) -> None:
    # `cores` workers on as many cores feed one batch per 2 ms; one core fewer leaves 1 / cores of the time idle.
    path = tool.scenario(PLAIN, {"workload.preprocess": f"{0.2 * cores} ms"})
    for options in ("2", "3", "2,3"):
        code, answer = tool.recommend(path, "--options", options)
        best = answer["recommendation"]
        assert code == 0
        assert best["cores_per_gpu"] == cores, options
        assert best["workers"] >= cores, options
        assert best["gpu_idle"] == pytest.approx(0, abs=1e-3), options
        assert best["throughput_samples_per_s"] == pytest.approx(5000, rel=1e-3), options
        assert best["verdict"] == "GPU-bound", options


@pytest.mark.parametrize(("target", "cores", "idle"), [(0.05, 5, 0), (0.25, 4, 0.2), (0.55, 3, 0.4), (0.65, 2, 0.6)])
def test_recommend_follows_the_target(tool: Tool, target: float, cores: int, idle: float) -> None:
    path = tool.scenario(PLAIN, {"target.gpu_idle": target})
    for words in ([path], [tool.scenario(PLAIN), "--idle-target", target]):
        code, answer = tool.recommend(*map(str, words), "--options", "2")
        assert code == 0
        assert answer["recommendation"]["cores_per_gpu"] == cores
        assert answer["recommendation"]["gpu_idle"] == pytest.approx(idle, abs=0.01)


def test_recommend_adds_a_core_for_a_spinning_trainer(tool: Tool) -> None:
    # It takes the share of one task among all; within 1 % no number of workers makes that small enough.
    spinning = tool.scenario(PLAIN, {"accelerator.sync": "spin"})
    for words, cores in (((), 5), (("--idle-target", "0.01"), 6)):
        code, answer = tool.recommend(spinning, "--options", "2", *words)
        assert (code, answer["recommendation"]["cores_per_gpu"]) == (0, cores)


def test_recommend_counts_slow_cores(tool: Tool) -> None:
    code, answer = tool.recommend(tool.scenario(PLAIN, {"host.speed": [0.5]}), "--options", "2")
    assert (code, answer["recommendation"]["cores_per_gpu"]) == (0, 10)


def test_recommend_is_per_gpu(tool: Tool) -> None:
    # Two devices need twice the cores, so as many for each as one device does.
    code, answer = tool.recommend(tool.scenario(PLAIN, {"accelerator.count": 2}), "--options", "2")
    assert (code, answer["recommendation"]["cores_per_gpu"]) == (0, 5)
    assert answer["lower_bound_cores"] <= 5


def test_recommend_prefers_the_fewest_cores_of_all_options(tool: Tool) -> None:
    # Half the time goes to the consumer in option 2 and to loading in option 1; only option 3 hides both.
    path = tool.scenario(PLAIN, {"workload.consumer": "2 ms"})
    code, answer = tool.recommend(path)
    assert code == 0
    assert answer["recommendation"]["option"] == 3
    counts = {row["option"]: row["cores_per_gpu"] for row in answer["options"]}
    assert counts[1] is None
    assert counts[2] is None
    assert counts[3] == answer["recommendation"]["cores_per_gpu"]


def test_one_core_where_preprocessing_is_next_to_nothing(tool: Tool) -> None:
    code, answer = tool.recommend(tool.scenario(PLAIN, {"workload.preprocess": "1 us"}))
    assert (code, answer["recommendation"]["cores_per_gpu"]) == (0, 1)
    assert answer["recommendation"]["verdict"] == "GPU-bound"


# Verdicts: each scenario has one cause of idling alone, and cores in plenty unless they are the cause.


@pytest.mark.parametrize(
    ("changes", "words", "idle", "verdict"),
    [
        pytest.param({}, ["--max-cores", 2], 0.6, "too few cores", id="too few cores"),
        pytest.param({"accelerator.launch": "5 ms"}, ["--options", "2"], 0.6, "launch-bound", id="launch, option 2"),
        pytest.param({"accelerator.launch": "5 ms"}, ["--options", "3"], 0.6, "launch-bound", id="launch, option 3"),
        pytest.param({"accelerator.launch": "5 ms"}, [], 0.6, "launch-bound", id="launch, all options"),
        pytest.param({"workload.consumer": "2 ms"}, ["--options", "2"], 0.5, "serial consumer", id="serial consumer"),
        pytest.param({"workload.copy": "5 ms"}, ["--options", "2"], 1 - 2 / 7, "copy", id="copy, option 2"),
        pytest.param({"workload.copy": "5 ms"}, ["--options", "3"], 0.6, "copy", id="copy, option 3"),
        # 10 samples x 1 ms: two at once take 5 ms, one at a time 10 ms.
        pytest.param(
            {"workload.fetch": "1 ms", "host.storage_streams": 2}, ["--options", "2"], 0.6, "storage", id="storage"
        ),
        pytest.param(
            {"workload.fetch": "1 ms", "loader.fetchers": 1}, ["--options", "3"], 0.8, "storage", id="fetchers"
        ),
        # k busy cores at 1 / k of their speed are one core: more of them cannot help.
        pytest.param(
            {"host.speed": [1 / k for k in range(1, 65)]},
            ["--options", "2", "--max-cores", 16],
            0.8,
            "bandwidth",
            id="bandwidth",
        ),
    ],
)
def test_verdict(tool: Tool, changes: dict[str, Any], words: list[Any], idle: float, verdict: str) -> None:
    code, answer = tool.recommend(tool.scenario(PLAIN, changes), *words)
    best = answer["recommendation"]
    assert code == 4
    assert best["gpu_idle"] == pytest.approx(idle, abs=0.02)
    assert best["verdict"] == verdict


def test_verdict_of_an_answered_question_is_gpu_bound(tool: Tool) -> None:
    code, answer = tool.recommend(tool.scenario(FULL), "--options", "3")
    assert code == 0
    assert answer["recommendation"]["gpu_idle"] == pytest.approx(0, abs=0.01)
    assert answer["recommendation"]["verdict"] == "GPU-bound"


def test_next_bottleneck_is_another_one_than_the_verdict(tool: Tool) -> None:
    for changes in ({}, {"accelerator.launch": "1.9 ms"}, {"workload.consumer": "0.05 ms"}):
        _, answer = tool.recommend(tool.scenario(PLAIN, changes), "--options", "2")
        assert answer["recommendation"]["next_bottleneck"] != answer["recommendation"]["verdict"], changes


# What holds for any scenario.


def generated(seed: int) -> Json:
    rng = random.Random(seed)
    batch = rng.choice([1, 8, 32, 100])
    step = rng.uniform(2, 200)
    # Cores between about 1 and 12.
    preprocess = step * rng.uniform(0.5, 10) / batch
    spread = rng.choice([0, 0.3, 1.0])
    sample: Any = f"{preprocess:.6f} ms"
    tables: Json = {
        "workload": {
            "batch_size": batch,
            "fetch": f"{rng.choice([0, 0.3]) * step / batch:.6f} ms",
            "preprocess": sample,
            "collate": f"{rng.choice([0, 0.1]) * step:.6f} ms",
            "consumer": f"{rng.choice([0, 0.01]) * step:.6f} ms",
            "copy": f"{rng.choice([0, 0.02]) * step:.6f} ms",
        },
        "accelerator": {
            "step": f"{step:.6f} ms",
            "launch": f"{rng.choice([0, 0.2, 0.9]) * step:.6f} ms",
            "sync": rng.choice(["spin", "block"]),
        },
        "target": {"gpu_idle": rng.choice([0.05, 0.1, 0.3])},
    }
    if rng.random() < 0.5:
        loss = rng.uniform(0, 0.03)
        tables["host"] = {"speed": [round(1 - loss * k, 4) for k in range(24)]}
    if spread:
        tables["spread"] = {"cv": spread, "distribution": rng.choice(["gamma", "lognormal"])}
    return tables


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= 8)) for seed in range(12)])
def test_any_scenario(tool: Tool, seed: int) -> None:
    tables = generated(seed)
    spread = tables.pop("spread", None)
    path = tool.scenario(tables)
    if spread:
        mean = tables["workload"]["preprocess"]
        wide = f'{{ mean = "{mean}", cv = {spread["cv"]}, distribution = "{spread["distribution"]}" }}'
        text = Path(path).read_text()
        Path(path).write_text(text.replace(f'preprocess = "{mean}"', f"preprocess = {wide}"))
    code, answer = tool.recommend(path)
    best = answer["recommendation"]
    target = tables["target"]["gpu_idle"]
    assert code in (0, 4)
    bound = answer["lower_bound_cores"]
    if bound is None:
        assert code == 4, "no core count can reach the target, yet one is recommended"
    if code == 0:
        assert bound <= best["cores_per_gpu"]
        assert best["gpu_idle"] <= target
        counts = [row["cores_per_gpu"] for row in answer["options"] if row["cores_per_gpu"] is not None]
        assert best["cores_per_gpu"] == min(counts)
        chosen = next(row for row in answer["options"] if row["option"] == best["option"])
        assert best["cores_per_gpu"] == min(row["cores"] for row in chosen["curve"] if row["gpu_idle"] <= target), (
            "not the fewest cores of its curve"
        )
    step = float(tables["accelerator"]["step"].split()[0]) / 1000
    for row in answer["options"]:
        curve = row["curve"]
        assert [point["cores"] for point in curve] == sorted({point["cores"] for point in curve})
        for point in curve:
            assert 0 <= point["gpu_idle_low"] <= point["gpu_idle"] + EXACT
            assert point["gpu_idle"] <= point["gpu_idle_high"] + EXACT
            assert point["gpu_idle_high"] <= 1
            # What is not idle is steps of `batch_size` samples.
            rate = (1 - point["gpu_idle"]) * tables["workload"]["batch_size"] / step
            assert point["throughput_samples_per_s"] == pytest.approx(rate, rel=0.02, abs=1e-6)
        for fewer, more in itertools.pairwise(curve):
            assert more["gpu_idle"] <= fewer["gpu_idle"] + 0.02, (row["option"], fewer["cores"], more["cores"])

"""The event kernel by itself: hand traces, no numba, memory and cost by counting, more of a resource, and theory."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated import random_job

from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.sim import clocks, compiled, fast, kernel
from coresim.sim import layout as L
from coresim.sim.arrays import build
from coresim.sim.draws import Draws, draw, pool_gaps
from coresim.sim.run import Run, RunLength
from coresim.stats import t_interval
from coresim.theory.birth_death import closed_line, example

F = Fraction
ROOT = Path(__file__).resolve().parents[1]
#: Two workers with batches of their own, nothing but preprocessing and steps.
LOADER = Stage("load", 2, (Phase("pre"),), dispatch="round_robin")


def line(
    workers: int, cores: Any, credits: int, pre: tuple[int, ...], step: int, **shared: Any
) -> tuple[Pipeline, Draws]:
    """A loader before an accelerator, with these times over and over."""
    loader = replace(LOADER, servers=workers, dispatch=shared.pop("dispatch", "round_robin"))
    loader = replace(loader, phases=shared.pop("phases", loader.phases))
    reads = shared.pop("reads", (0,))
    shared = {"cores": cores, "credits": credits, "speed": (F(1),), "slowdown": (F(1),)} | shared
    exact = {"allreduce": F(0), "startup": F(0), "worker_startup": F(0)}
    pipeline = Pipeline((loader,), Trainer(copy_mode="none", spin=False), Phase("step"), **exact, **shared)
    times = {"load.pre": pre, "load.read": reads, "accelerator.step": (step,)}
    tapes = {key: np.array([[time] for time in times.get(key, (0,))], dtype=object) for key, *_ in pipeline.phases()}
    return pipeline, Draws(tapes)


def in_floats(pipeline: Pipeline, draws: Draws) -> tuple[Pipeline, Draws]:
    """The same, for the compiled kernel."""
    names = ("cores", "allreduce", "startup", "worker_startup")
    changes = {name: float(getattr(pipeline, name)) for name in names}
    speed, slowdown = (tuple(map(float, table)) for table in (pipeline.speed, pipeline.slowdown))
    tapes = {key: tape.astype(float) for key, tape in draws.tapes.items()}
    return replace(pipeline, **changes, speed=speed, slowdown=slowdown), Draws(tapes)


def makespan(*settings: Any, steps: int, **shared: Any) -> Any:
    return fast.simulate_events(*line(*settings, **shared), RunLength(steps)).makespan


# By hand


def test_three_workers_on_two_cores_deliver_at_the_rate_of_the_cores() -> None:
    # Three tasks of 3 s at rate 2/3 until 4.5, then batch 3 alone, 3 and 4, and from 6.5 three again:
    # batch 3 has 1 left then and takes 1.5 s. From there on one batch each 1.5 s = 3 s / 2 cores.
    case = line(3, F(2), 3, (3,), 1)
    expected = (F(9, 2), F(11, 2), F(13, 2), 8, F(19, 2), 11, F(25, 2))
    exact = fast.simulate_events(*case, RunLength(7, trace=True))
    assert exact.traces[0].pick_up == expected
    assert fast.simulate_events(*in_floats(*case), RunLength(7, trace=True)).traces[0].pick_up == pytest.approx(
        expected
    )


def test_a_busy_core_slows_the_step_down_while_it_is_busy() -> None:
    # Step 0 from 3: at half speed beside batch 1 until 6, so 3/2 done; the other 5/2 at full speed.
    case = line(1, F(1), 1, (3,), 4, slowdown=(F(1), F(2)))
    exact = fast.simulate_events(*case, RunLength(3, trace=True))
    assert exact.traces[0].end == (F(17, 2), 14, F(39, 2))
    assert fast.simulate_events(*in_floats(*case), RunLength(3)).makespan == 19.5


def test_in_order_delivery_waits_for_the_slow_batch() -> None:
    (trace,) = fast.simulate_events(*line(2, F(2), 2, (5, 1, 1, 6, 1), 2), RunLength(5, trace=True)).traces
    assert trace.pick_up == (5, 7, 9, 13, 15)
    assert trace.done == ((5, 1, 6, 13, 10),)
    assert trace.server == ((0, 1, 0, 1, 0),)


# Without numba

_PLAIN = """
import sys, random, json
sys.modules["numba"] = None
from generated import random_job
from coresim.sim import fast, kernel
assert kernel.run.at_hand()
sys.modules["llvmlite"] = None
for seed in json.loads(sys.argv[1]):
    run = fast.simulate_events(*random_job(random.Random(seed), exact=False))
    print(json.dumps([run.makespan, run.events, [list(trace.end) for trace in run.traces]]))
"""


def test_it_gives_the_same_numbers_without_numba() -> None:
    seeds = list(range(40))
    command = [sys.executable, "-c", _PLAIN, json.dumps(seeds)]
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": ""}
    plain = subprocess.run(command, capture_output=True, text=True, env=path, timeout=200, check=False)
    assert plain.returncode == 0, plain.stderr
    compiled = [fast.simulate_events(*random_job(random.Random(seed), exact=False)) for seed in seeds]
    assert [json.loads(row) for row in plain.stdout.splitlines()] == [
        [run.makespan, run.events, [list(trace.end) for trace in run.traces]] for run in compiled
    ]


# Machine code follows addresses: it checks no index


class Fenced(np.ndarray):
    """An array whose indices neither count from its end nor leave it."""

    def __getitem__(self, index: Any) -> Any:
        assert not isinstance(index, int | np.integer) or 0 <= index < len(self)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        assert not isinstance(index, int | np.integer) or 0 <= index < len(self)
        super().__setitem__(index, value)


def test_no_index_leaves_its_array() -> None:
    for seed in range(60):
        counts, times = build(*random_job(random.Random(seed), exact=False), np.float64)
        assert kernel.run.plain(counts.view(Fenced), times.view(Fenced)) == 0


def test_arrays_of_another_kind_are_refused() -> None:
    counts, times = build(*in_floats(*line(1, F(1), 1, (1,), 1)), RunLength(1), np.float64)
    kernel.run(counts.copy(), times.copy())
    for bad in ((counts, times.astype(np.float32)), (counts.astype(np.int32), times), (counts[::2], times)):
        with pytest.raises(TypeError, match="int64 and float64"):
            kernel.run(*bad)


# With numba, from disk

_AT_HAND = """
from coresim.sim import kernel
print(kernel.run.at_hand())
"""


def test_machine_code_on_disk_is_outdated_by_an_edit_of_any_part(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    fast.simulate_events(*in_floats(*line(1, F(1), 1, (1,), 1)), RunLength(1))
    shutil.copytree(ROOT / "coresim", tmp_path / "coresim")

    def at_hand() -> str:
        command = [sys.executable, "-c", _AT_HAND]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.strip()

    if at_hand() != "True":
        pytest.skip("machine code is kept elsewhere on this machine")
    for part in ("clocks", "servers"):
        path = tmp_path / "coresim" / "sim" / f"{part}.py"
        text = path.read_text()
        path.write_text(text + "\n# edited\n")
        assert at_hand() == "False"
        path.write_text(text)
        assert at_hand() == "True"


def test_machine_code_is_dated_by_every_file_that_goes_into_it() -> None:
    files = {part.__module__.rpartition(".")[2] for part in compiled._parts}
    assert files | {"compiled"} == set(compiled._SOURCES)


_LOADED = """
import random, sys
import numpy as np
from generated import random_job
from test_recurrence import plain_job
from coresim.sim import draws, fast, kernel, plain, recurrence
entries = {
    "pool": lambda: draws._pool(np.ones((2, 3)), 2).tolist(),
    "kernel": lambda: fast.simulate_events(*random_job(random.Random(1), exact=False)).makespan,
    "recurrence": lambda: plain.simulate(*plain_job(random.Random(1), True)).makespan,
}
assert kernel.run.at_hand() and recurrence.run.at_hand() and draws.pool_gaps.at_hand()
print([entries[name]() for name in sys.argv[1:]])
assert "numba" not in sys.modules
"""


def test_machine_code_on_disk_needs_no_numba_whatever_is_loaded_first() -> None:
    pytest.importorskip("numba")
    names = ["pool", "kernel", "recurrence"]
    printed = []
    for order in (names, names, names[::-1]):  # the first time some may have to be compiled
        code = _LOADED if printed else _LOADED.replace("assert", "0 and")
        path = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        command = [sys.executable, "-c", code, *order]
        done = subprocess.run(command, capture_output=True, text=True, env=path, timeout=250, check=False)
        assert done.returncode == 0, done.stderr
        printed.append(json.loads(done.stdout))
    assert printed[0] == printed[1] == printed[2][::-1]


# Memory and cost, by counting


def test_memory_does_not_grow_with_the_steps_unless_traced() -> None:
    pipeline, draws = in_floats(*line(8, F(5), 16, (3, 1, 2), 1))

    def sizes(length: RunLength) -> tuple[int, int]:
        counts, times = build(pipeline, draws, length, np.float64)
        return counts.nbytes, times.nbytes

    assert sizes(RunLength(10)) == sizes(RunLength(10_000_000))
    assert max(sizes(RunLength(10))) < 20_000
    assert min(sizes(RunLength(10_000, trace=True))) > 10 * max(sizes(RunLength(10)))


def test_events_grow_linearly_with_the_steps() -> None:
    pipeline, draws = in_floats(*line(8, F(5), 16, (3, 1, 2), 1))
    first, second, third = (
        fast.simulate_events(pipeline, draws, RunLength(steps)).events for steps in (400, 800, 1200)
    )
    # Per step: one preprocessing, the trainer's two pieces of work and the accelerator's.
    assert third - second == second - first == 4 * 400


class Counted(float):
    """A deadline that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) < float(other)

    def __le__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) <= float(other)


def heap_cost(size: int) -> float:
    """Comparisons per task that is started and ended, with so many under way."""
    pipeline, draws = line(size, F(2), size, (1,), 1)
    n, t = build(pipeline, draws, RunLength(1), object)
    deadlines = random.Random(1).sample(range(10 * size), size)
    Counted.compared = 0
    for actor, deadline in enumerate(deadlines):
        clocks.push_at(n, t, 0, L.CORES, Counted(deadline), actor)
    order = [deadlines[clocks.pop(n, t, 0, L.CORES)] for _ in deadlines]
    assert order == sorted(deadlines)
    return Counted.compared / size


def test_a_task_costs_a_logarithm_of_their_number() -> None:
    small, large = heap_cost(64), heap_cost(4096)
    assert small < 2 * 6 + 3 and large < 2 * 12 + 3
    assert large - small < 2.1 * 6  # six doublings


# More of something


@pytest.mark.parametrize("chunk", range(2))
def test_a_core_more_never_lengthened_a_run_with_storage_to_spare(chunk: int) -> None:
    shortened = 0
    for seed in range(chunk, 1000, 2):
        pipeline, draws, length = random_job(random.Random(seed), exact=False)
        pipeline = replace(pipeline, speed=(1.0,), slowdown=(1.0,), storage_streams=None)
        length = replace(length, trace=False)
        before, after = (
            fast.simulate_events(replace(pipeline, cores=cores), draws, length).makespan
            for cores in (pipeline.cores, pipeline.cores + 1)
        )
        assert after <= before * (1 + 1e-9), f"seed {seed}"
        shortened += after < before * 0.99
    assert shortened > 50


def test_a_worker_more_can_lengthen_a_run() -> None:
    # One core. One worker: batch 0 at 1, batch 1 at 2, steps 1-5-9. Two: both at 2, steps 2-6-10.
    assert makespan(1, F(1), 2, (1,), 4, steps=2, dispatch="shared") == 9
    assert makespan(2, F(1), 2, (1,), 4, steps=2, dispatch="shared") == 10


def test_a_credit_more_can_lengthen_a_run() -> None:
    assert makespan(2, F(1), 2, (1, 0), 4, steps=2, dispatch="shared") == 9
    # Batches 0 and 2 take 1 s, batch 1 none: a third credit lets 2 in at once, to share the core with 0.
    assert makespan(2, F(1), 3, (1, 0), 4, steps=2, dispatch="shared") == 10


def test_a_core_more_can_lengthen_a_run_where_reads_share_the_storage() -> None:
    # Batches 0 and 2 preprocess (1 s), 1 and 3 read (2 s). One core: 0, 1, 2 all end at 2. Two cores: batch 0 ends
    # at 1, so batch 3 begins to read then and slows batch 1, which ends at 3.
    phases = (Phase("pre"), Phase("read", "storage"))
    settings: dict[str, Any] = {"reads": (0, 2), "phases": phases, "storage_streams": F(1), "steps": 2}
    assert makespan(3, F(1), 3, (1, 0), 0, **settings) == 2
    assert makespan(3, F(2), 3, (1, 0), 0, **settings) == 3


# Theory: the closed cyclic exponential line


def busy_and_outstanding(run: Run) -> tuple[float, float]:
    (rank,) = run.ranks
    return rank.accelerator["busy"] / (rank.end - rank.begin), rank.outstanding / (rank.end - rank.begin)


@pytest.mark.parametrize(
    ("workers", "cores", "credits", "prepare", "step"),
    [(4, 2.0, 8, 1.0, 0.5), (6, 2.5, 6, 1.0, 0.35), (8, 5.0, 16, 2.0, 0.45)],
)
def test_birth_death(workers: int, cores: float, credits: int, prepare: float, step: float) -> None:
    pipeline = example(workers, cores, credits, prepare, step)
    theory = closed_line(workers, cores, credits, prepare, step)
    length = RunLength(20_000, warm_up=500)
    runs = [fast.simulate_events(pipeline, draw(pipeline, 20_000, 11, number), length) for number in range(24)]
    busy, outstanding = zip(*map(busy_and_outstanding, runs), strict=True)
    for measured, exact in ((busy, theory.utilisation), (outstanding, theory.outstanding)):
        low, high = t_interval(measured, 0.99)
        assert low - 1e-9 <= exact <= high + 1e-9
        assert high - low < 0.01 * exact


def test_birth_death_would_notice_a_core_too_many() -> None:
    pipeline = example(4, 3.0, 8, 1.0, 0.5)
    theory = closed_line(4, 2.0, 8, 1.0, 0.5)
    runs = [
        fast.simulate_events(pipeline, draw(pipeline, 20_000, 11, number), RunLength(20_000, 500))
        for number in range(8)
    ]
    low, _ = t_interval([busy_and_outstanding(run)[0] for run in runs], 0.99)
    assert low > theory.utilisation


@pytest.mark.skipif(not compiled._has_numba(), reason="numba is not here")
def test_a_numba_with_another_inside_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(plain: Any) -> bytes:
        raise AttributeError("serialize_using_object_code")

    monkeypatch.setattr(compiled, "_find", lambda plain: None)
    monkeypatch.setattr(compiled, "_compile", another)
    monkeypatch.setattr(compiled, "_keep", lambda plain, code: pytest.fail("there is nothing to keep"))
    counts, one, other = np.array([2, 3, 2]), np.arange(8.0), np.arange(8.0)
    fresh = compiled.entry(pool_gaps.plain)
    assert fresh(counts.copy(), one) == pool_gaps.plain(counts.copy(), other) == 0
    assert one.tolist() == other.tolist()


@pytest.mark.skipif(not compiled._has_numba(), reason="numba is not here")
def test_machine_code_of_older_sources_goes_and_that_of_other_machines_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = pool_gaps.plain
    mine = compiled._name(plain)
    machine, sources = compiled._date()
    older = mine.replace(sources, "0" * 32)
    stay = {mine.replace(machine, "0" * 32), mine.replace("pool_gaps", "another"), "compiled.cpython-311.pyc"}
    for name in {older, *stay}:
        (tmp_path / name).touch()
    monkeypatch.setattr(compiled, "_folders", lambda: (tmp_path,))
    compiled._keep(plain, b"code")
    assert {path.name for path in tmp_path.iterdir()} == {mine, *stay}
    assert (tmp_path / mine).read_bytes() == b"code"


@pytest.mark.skipif(not compiled._has_numba(), reason="numba is not here")
def test_machine_code_that_goes_while_it_is_looked_for_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_find", lambda plain: tmp_path / "gone.o")
    monkeypatch.setattr(compiled, "_folders", lambda: (tmp_path,))
    monkeypatch.setattr(compiled, "_compile", lambda plain: b"code")
    monkeypatch.setattr(compiled, "_load", lambda code: code)
    assert compiled._code(pool_gaps.plain) == b"code"

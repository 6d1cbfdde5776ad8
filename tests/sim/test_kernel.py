"""The event kernel by itself: hand traces, its two forms, memory and cost by counting, more of a resource, theory."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from birth_death import closed_line, example, mean_outstanding
from generated import random_job

from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.sim import fast
from coresim.sim.draws import Draws, draw
from coresim.sim.kernel import COMPILED, REMEDY, clocks, engine, events, pools
from coresim.sim.kernel.build import build
from coresim.sim.kernel.memory import Arena
from coresim.sim.kernel.records import Actor, Clock
from coresim.sim.run import Run, RunLength
from coresim.stats import t_interval

F = Fraction
ROOT = Path(__file__).resolve().parents[2]
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
    service_times = {
        key: np.array([[time] for time in times.get(key, (0,))], dtype=object) for key, *_ in pipeline.phases()
    }
    return pipeline, Draws(service_times)


def in_floats(pipeline: Pipeline, draws: Draws) -> tuple[Pipeline, Draws]:
    """The same, for the compiled kernel."""
    names = ("cores", "allreduce", "startup", "worker_startup")
    changes = {name: float(getattr(pipeline, name)) for name in names}
    speed, slowdown = (tuple(map(float, table)) for table in (pipeline.speed, pipeline.slowdown))
    service_times = {key: drawn_times.astype(float) for key, drawn_times in draws.service_times.items()}
    return replace(pipeline, **changes, speed=speed, slowdown=slowdown), Draws(service_times)


def makespan(*settings: Any, steps: int, **shared: Any) -> Any:
    return fast.simulate(*line(*settings, **shared), RunLength(steps)).makespan


# By hand


def test_three_workers_on_two_cores_deliver_at_the_rate_of_the_cores() -> None:
    # Three tasks of 3 s at rate 2/3 until 4.5, then batch 3 alone, 3 and 4, and from 6.5 three again:
    # batch 3 has 1 left then and takes 1.5 s. From there on one batch each 1.5 s = 3 s / 2 cores.
    case = line(3, F(2), 3, (3,), 1)
    expected = (F(9, 2), F(11, 2), F(13, 2), 8, F(19, 2), 11, F(25, 2))
    exact = fast.simulate(*case, RunLength(7, trace=True))
    assert exact.traces[0].pick_up == expected
    assert fast.simulate(*in_floats(*case), RunLength(7, trace=True)).traces[0].pick_up == pytest.approx(expected)


def test_a_busy_core_slows_the_step_down_while_it_is_busy() -> None:
    # Step 0 from 3: at half speed beside batch 1 until 6, so 3/2 done; the other 5/2 at full speed.
    case = line(1, F(1), 1, (3,), 4, slowdown=(F(1), F(2)))
    exact = fast.simulate(*case, RunLength(3, trace=True))
    assert exact.traces[0].end == (F(17, 2), 14, F(39, 2))
    assert (exact.ranks[0].accelerator["busy"], exact.ranks[0].accelerator["slowed"]) == (12, F(9, 2))
    assert fast.simulate(*in_floats(*case), RunLength(3)).makespan == 19.5


def test_in_order_delivery_waits_for_the_slow_batch() -> None:
    (trace,) = fast.simulate(*line(2, F(2), 2, (5, 1, 1, 6, 1), 2), RunLength(5, trace=True)).traces
    assert trace.pick_up == (5, 7, 9, 13, 15)
    assert trace.done == ((5, 1, 6, 13, 10),)
    assert trace.server == ((0, 1, 0, 1, 0),)


# One text, two forms


@pytest.fixture
def compiled() -> Any:
    if COMPILED is None:
        pytest.skip(f"the kernel is not compiled here; {REMEDY}")
    return COMPILED


@pytest.mark.parametrize("chunk", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_compiled_kernel_gives_the_same_numbers_to_the_last_bit(chunk: int, compiled: Any) -> None:
    for seed in range(chunk, 600, 2):
        job = random_job(random.Random(seed), exact=False)
        assert compiled.simulate(*job) == engine.simulate(*job), f"seed {seed}"


def test_a_compiled_run_without_a_trace_is_the_same_run(compiled: Any) -> None:
    for seed in range(60):
        pipeline, draws, length = random_job(random.Random(seed), exact=False)
        untraced = compiled.simulate(pipeline, draws, replace(length, trace=False))
        assert untraced == replace(compiled.simulate(pipeline, draws, length), traces=())


def test_compiled_pools_are_the_same(compiled: Any) -> None:
    samples = np.random.default_rng(1).exponential(size=(200, 3))
    (gaps, free, last), own = (module.pool_gaps(samples, np.zeros(4), 0.0) for module in (compiled, pools))
    assert (gaps.tolist(), free.tolist(), last) == (own[0].tolist(), own[1].tolist(), own[2])


def test_integers_in_an_array_of_integers_are_times_too(compiled: Any) -> None:
    pipeline, draws = in_floats(*line(2, F(2), 2, (5, 1, 1, 6, 1), 2))
    whole = Draws({key: drawn_times.astype(int) for key, drawn_times in draws.service_times.items()})
    assert compiled.simulate(pipeline, whole, RunLength(5)) == compiled.simulate(pipeline, draws, RunLength(5))


def test_a_compiled_run_lets_other_threads_go_on(compiled: Any) -> None:
    pipeline, draws = in_floats(*line(8, F(5), 16, (3, 1, 2), 1))
    turns, seen = [0], []

    def simulate() -> None:
        for _ in range(20):
            before = turns[0]
            compiled.simulate(pipeline, draws, RunLength(200_000))
            seen.append(turns[0] - before)
            if seen[-1]:
                return

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no thread is made to give the interpreter's lock away: it must let it go
    try:
        thread = threading.Thread(target=simulate)
        thread.start()
        while thread.is_alive():
            turns[0] += 1
            time.sleep(0)
    finally:
        sys.setswitchinterval(usual)
    assert max(seen) > 0


_PLAIN = """
import sys
sys.modules["coresim.sim.kernel._compiled"] = None
import random
from generated import random_job
from coresim.cli.common import engine_named
from coresim.sim import fast
job = random_job(random.Random(3), exact=False)
print(engine_named("fast")(*job).makespan)
"""


def test_where_it_is_not_compiled_the_same_answer_comes_slowly_and_says_so() -> None:
    path = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", _PLAIN]
    done = subprocess.run(command, capture_output=True, text=True, env=path, timeout=200, check=True)
    job = random_job(random.Random(3), exact=False)
    assert float(done.stdout) == engine.simulate(*job).makespan
    (said,) = done.stderr.splitlines()
    assert said.startswith("coresim: the simulator is not compiled") and "install" in said


_TEXT = "from coresim.sim import kernel; print(kernel.COMPILED is not None, kernel.REMEDY)"


def test_a_kernel_compiled_from_another_text_is_not_used(compiled: Any, tmp_path: Path) -> None:
    package = Path(engine.__file__).parents[2]  # that in use, installed or not
    shutil.copytree(package, tmp_path / "coresim", ignore=shutil.ignore_patterns("__pycache__"))

    def found() -> str:
        command = [sys.executable, "-c", _TEXT]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout.strip()

    assert found() == "True"
    for name in ("clocks.py", "memory.pyx"):
        path = tmp_path / "coresim" / "sim" / "kernel" / name
        text = path.read_text()
        path.write_text(text + "\n# edited\n")
        assert found().startswith("False it was compiled from another text: install coresim again")
        path.write_text(text)


# C checks no index


class Fenced(list[Any]):
    """A list whose indices neither count from its end nor leave it."""

    def __getitem__(self, index: Any) -> Any:
        assert 0 <= index < len(self)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        assert 0 <= index < len(self)
        super().__setitem__(index, value)


class FencedArena(Arena):
    """Memory of fenced lists."""

    def _counted(self, given: list[Any]) -> list[Any]:
        return Fenced(super()._counted(given))

    def values(self, array: Any) -> list[Any]:
        return Fenced(super().values(array))


def test_no_index_leaves_its_list() -> None:
    for seed in range(100):
        pipeline, draws, length = random_job(random.Random(seed), exact=False)
        job = build(FencedArena(), pipeline, draws, length)
        assert isinstance(job.ranks, Fenced) and isinstance(job.consumer.times, Fenced)
        assert events.run(job)


def test_the_fence_is_there() -> None:
    with pytest.raises(AssertionError):
        Fenced([1])[-1]
    with pytest.raises(AssertionError):
        Fenced([1])[1] = 2


# Memory and cost, by counting


def test_memory_does_not_grow_with_the_steps_unless_traced() -> None:
    pipeline, draws = in_floats(*line(8, F(5), 16, (3, 1, 2), 1))

    for form in (engine, COMPILED or engine):
        small = form.footprint(pipeline, draws, RunLength(10))
        assert small == form.footprint(pipeline, draws, RunLength(10_000_000)) < 40_000
        assert form.footprint(pipeline, draws, RunLength(10_000, trace=True)) > 4 * small


def test_events_grow_linearly_with_the_steps() -> None:
    pipeline, draws = in_floats(*line(8, F(5), 16, (3, 1, 2), 1))
    first, second, third = (fast.simulate(pipeline, draws, RunLength(steps)).events for steps in (400, 800, 1200))
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
    clock = Clock(deadlines=[0] * size, actors=[None] * size)
    deadlines = random.Random(1).sample(range(10 * size), size)
    Counted.compared = 0
    for deadline in deadlines:
        clocks.push_at(clock, Counted(deadline), Actor(number=deadline))
    order = [actor.number for _ in deadlines if (actor := clocks.pop(clock))]
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
        # A hand-over's time is drawn by its state. Another core changes the state, and who waits for turns.
        trainer = replace(pipeline.trainer, handover=(), settling=0)
        pipeline = replace(pipeline, trainer=trainer, speed=(1.0,), slowdown=(1.0,), storage_streams=None)
        length = replace(length, trace=False)
        before, after = (
            fast.simulate(replace(pipeline, cores=cores), draws, length).makespan
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
    return rank.accelerator["busy"] / (rank.end - rank.begin), mean_outstanding(run)


@pytest.mark.parametrize(
    ("workers", "cores", "credits", "prepare", "step"),
    [(4, 2.0, 8, 1.0, 0.5), (6, 2.5, 6, 1.0, 0.35), pytest.param(8, 5.0, 16, 2.0, 0.45, marks=pytest.mark.slow)],
)
def test_birth_death(workers: int, cores: float, credits: int, prepare: float, step: float) -> None:
    pipeline = example(workers, cores, credits, prepare, step)
    theory = closed_line(workers, cores, credits, prepare, step)
    length = RunLength(20_000, warm_up=500, trace=True)
    runs = [fast.simulate(pipeline, draw(pipeline, 20_000, 11, number), length) for number in range(24)]
    busy, outstanding = zip(*map(busy_and_outstanding, runs), strict=True)
    for measured, exact in ((busy, theory.utilisation), (outstanding, theory.outstanding)):
        low, high = t_interval(measured, 0.99)
        assert low - 1e-9 <= exact <= high + 1e-9
        assert high - low < 0.01 * exact


def test_birth_death_would_notice_a_core_too_many() -> None:
    pipeline = example(4, 3.0, 8, 1.0, 0.5)
    theory = closed_line(4, 2.0, 8, 1.0, 0.5)
    runs = [fast.simulate(pipeline, draw(pipeline, 20_000, 11, number), RunLength(20_000, 500)) for number in range(8)]
    low, _ = t_interval([run.ranks[0].accelerator["busy"] / (run.makespan - run.ranks[0].begin) for run in runs], 0.99)
    assert low > theory.utilisation

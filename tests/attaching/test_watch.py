"""Watching a running job: the verdict from counters, and real processes watched from outside."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import types

import pytest

from coresim.advise.activity import UNKNOWN, Activity, diagnose
from coresim.attaching.watch import open_gpus, watch
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.activity import Process, Tick
from coresim.report.activity import activity_sections, tick_line
from coresim.report.plain import answer_lines

TRAINING = """
import itertools
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        total = 0
        for number in range(300_000):
            total += number * number
        return torch.full((16,), float(total % 7)), 1.0

if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for values, label in itertools.islice(DataLoader(Slow(), batch_size=4, num_workers=2), 60):
        loss = (model(values).squeeze(1) - label).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def tick(second: float, main: float = 0.1, workers: tuple[float, ...] = (), state: str = "S", **other: object) -> Tick:
    processes = [Process(1, True, main, "S", 0.0)]
    processes += [Process(2 + place, False, cores, state, 10.0) for place, cores in enumerate(workers)]
    values = {"host_cores": main + sum(workers), "io_wait_cores": 0.0, "gpus": ()} | other
    return Tick(second, tuple(processes), **values)  # type: ignore[arg-type]


def text_of(found: Activity) -> str:
    """What is printed, in one line."""
    return " ".join(answer_lines("", *activity_sections(found, {})).split())


def verdict(usable: float, **other: object) -> str:
    return diagnose([tick(1.0, **other), tick(2.0, **other)], usable).verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("usable", "seen", "name"),
    [
        (8, {"gpus": (0.97,), "workers": (1.0, 1.0)}, "GPU-bound"),
        (8, {"gpus": (0.3,), "workers": (1.0, 1.0)}, "too few workers"),
        (2, {"gpus": (0.3,), "workers": (0.95, 0.95)}, "too few cores"),
        (8, {"gpus": (0.3,), "workers": (0.3, 0.3), "state": "D"}, "storage"),
        (8, {"gpus": (0.3,), "workers": (0.3, 0.3), "main": 1.0}, "serial consumer"),
        (8, {"main": 1.0}, "no overlap"),
        (2, {"main": 0.1, "workers": (0.3, 0.3), "state": "R", "host_cores": 2.0}, "too few cores"),
        (2, {"main": 0.1, "workers": (0.3, 0.3), "state": "R", "host_cores": 0.7}, UNKNOWN),
        (8, {"main": 0.2, "workers": (0.4, 0.3)}, UNKNOWN),
    ],
)
def test_the_verdict_is_what_was_busy(usable: float, seen: dict, name: str):
    assert verdict(usable, **seen) == name


def test_sleeping_helpers_are_no_workers():
    found = diagnose([tick(1.0, workers=(1.0, 0.0)), tick(2.0, workers=(1.0, 0.0))], 8)
    assert found.worker_cores == (1.0,)
    assert found.verdict == "too few workers"


def test_runs_of_zero_utilisation_are_counted():
    shares = (0.0, 0.0, 0.9, 0.0, 0.5, 0.0, 0.0, 0.0)
    assert diagnose([tick(n, gpus=(share,)) for n, share in enumerate(shares)], 8).zero_runs == (2, 1, 3)
    assert diagnose([tick(n, gpus=(0.0, 0.9)) for n in range(3)], 8).zero_runs == ()
    assert diagnose([tick(n) for n in range(3)], 8).zero_runs == ()


def test_events_are_stretches_of_busy_cores_and_of_waiting():
    busy, idle, waits = {"workers": (1.0, 0.9)}, {"workers": (0.3, 0.3)}, {"workers": (0.3, 0.3), "state": "D"}
    seen = [busy, busy, idle, waits, waits, waits, busy, idle, idle]
    found = diagnose([tick(second, **values) for second, values in enumerate(seen, start=1)], 2)
    assert (found.busy_runs, found.wait_runs) == ((2, 1), (3,))
    text = text_of(found)
    assert "2 stretches with all its cores busy, the longest 2 ticks, 3 in all" in text
    assert "1 stretch of waiting for a device, the longest 3 ticks, 3 in all" in text
    # One more look in which it ran: six of nine sleeping, three waiting.
    assert found.worker_states == ({"S": pytest.approx(6 / 9), "D": pytest.approx(3 / 9)},) * 2
    assert "(S 67 % D 33 %)" in text
    assert "events: none" in text_of(diagnose([tick(1.0, **idle)], 8))


def test_imports_before_the_first_worker_do_not_blame_the_trainer():
    seen = [tick(1.0, main=1.0), tick(2.0, main=1.0), tick(3.0, workers=(1.0, 1.0)), tick(4.0, workers=(1.0, 1.0))]
    found = diagnose(seen, 8)
    assert (found.verdict, found.main_cores, found.seconds) == ("too few workers", pytest.approx(0.1), 4.0)


def of(second: float, *workers: tuple[int, float], main: float = 0.1) -> Tick:
    """A tick with workers of these numbers and cores."""
    processes = (Process(1, True, main, "S", 0.0), *(Process(pid, False, cores, "R", 0.0) for pid, cores in workers))
    return Tick(second, processes, main + sum(cores for _, cores in workers), 0.0)


def test_a_job_that_ends_by_itself_had_workers():
    # Imports, work, saving: the last looks show the trainer alone.
    work = [of(second, (7, 1.0), (8, 0.9)) for second in (3, 4, 5, 6)]
    found = diagnose([of(1, main=1.0), of(2, main=1.0), *work, of(7, main=1.0), of(8, main=1.0)], 8)
    assert (found.verdict, found.worker_cores) == ("too few workers", (pytest.approx(1.0), pytest.approx(0.9)))
    assert (found.start_s, found.end_s, found.seconds, found.main_cores) == (2, 2, 8, pytest.approx(0.1))
    text = text_of(found)
    assert "Watched 8.0 s (start-up 2.0 s, work 4.0 s, end 2.0 s)" in text
    assert "workers 1.00 (R 100 %), 0.90 (R 100 %); whole host" in text


def test_workers_that_start_anew_each_epoch_are_the_same_workers():
    def epoch(number: int) -> list[Tick]:
        first = 10 + 10 * number
        busy = [of(6 * number + at, (first, 1.0), (first + 1, 0.92)) for at in range(1, 5)]
        return [*busy, of(6 * number + 5)]

    found = diagnose([tick for number in range(3) for tick in epoch(number)], 8)
    assert (found.worker_cores, found.generations) == ((pytest.approx(1.0), pytest.approx(0.92)), 3)
    assert found.verdict == "too few workers"
    assert "workers 1.00 (R 100 %), 0.92 (R 100 %), started anew 2 times" in text_of(found)


def test_a_process_of_a_moment_is_no_worker():
    seen = [of(1, (5, 0.8), main=1.0), *(of(second, main=1.0) for second in range(2, 20))]
    found = diagnose(seen, 8)
    assert (found.verdict, found.worker_cores, found.start_s, found.end_s) == ("no overlap", (), 0, 0)


def test_ticks_and_verdict_do_not_mix_with_the_job_s_own_output(tmp_path, capfd: pytest.CaptureFixture[str]):
    code = "import sys, time\nfor part in range(4):\n print(f'\\r{part}/4', end='', file=sys.stderr); time.sleep(0.25)"
    ticks = tmp_path / "ticks.txt"
    assert main(["watch", "--interval", "100 ms", "--ticks", str(ticks), "--", sys.executable, "-c", code]) == 0
    out, err = capfd.readouterr()
    assert err == "\r0/4\r1/4\r2/4\r3/4" and out.startswith("\nVerdict: ")
    lines = ticks.read_text().splitlines()
    assert lines and all(" s  GPU " in line for line in lines)
    assert main(["watch", "--ticks", str(tmp_path / "no" / "ticks"), "--", "ls"]) == 2


def test_of_a_launched_job_the_ranks_are_the_trainers_and_their_children_the_workers():
    """Known from inside only when they train: before that, they were seen as any other process."""
    ranks = [of(second, (2, 0.2), (3, 0.4), (4, 1.0), (5, 1.0), main=0.7) for second in (1, 2, 3)]
    assert diagnose(ranks, 8).main_cores == pytest.approx(0.7)
    found = diagnose([tick.with_trainers({2, 3}) for tick in ranks], 8)
    assert (found.verdict, found.trainers, found.worker_cores) == ("too few workers", 2, (1.0, 1.0))
    assert found.main_cores == pytest.approx(0.3) and found.job_cores == pytest.approx(3.3)
    assert "each of 2 trainers 0.30; workers 1.00 (R 100 %), 1.00 (R 100 %)" in text_of(found)
    starting = of(0, main=1.0).with_trainers({2, 3})
    assert starting.main_cores == 0.0 and starting.workers == ()


def test_a_job_that_nobody_launched_trains_itself():
    seen = of(1, (7, 1.0))
    assert seen.with_trainers(set()) is seen
    assert seen.with_trainers({1}) == seen


def test_a_job_bound_to_few_cpus_lacks_cores_on_a_large_host():
    seen = {"workers": (0.95, 0.95), "main": 0.05}
    assert verdict(64, **seen) == "too few workers"
    assert verdict(64, **seen, allowed=2) == "too few cores"


def test_gpus_are_read_through_nvml_where_it_is(monkeypatch: pytest.MonkeyPatch):
    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda index: types.SimpleNamespace(gpu=(37, 0)[index], memory=99),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert open_gpus()() == (0.37, 0.0)
    nvml.nvmlDeviceGetCount = lambda: 1 // 0
    assert open_gpus()() == ()


def test_the_text_says_what_counters_cannot_tell():
    text = text_of(diagnose([tick(1.0, main=1.0)], 4))
    assert text.startswith("Verdict: no overlap")
    assert "no GPU was read" in text and "spins" in text
    assert "GPU  30%" in tick_line(tick(1.0, gpus=(0.3,)))


def test_a_process_that_is_not_there_is_named():
    with pytest.raises(InputError, match="no such process"):
        next(watch(2**22 + 5))


def test_a_busy_process_is_seen_until_it_ends():
    job = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    ticks, seen, before = [], 0.0, 0.0
    try:
        for tick in watch(job.pid, 0.1):
            ticks.append(tick)
            seen, before = seen + tick.main_cores * (tick.second - before), tick.second
            if seen > 0.2:  # CPU seconds, whatever part of a core it gets
                job.kill()
    finally:
        job.kill()
        job.wait()
    assert seen > 0.2 and all(tick.processes[0].pid == job.pid for tick in ticks)


def test_usage_errors(capsys: pytest.CaptureFixture[str]):
    assert main(["watch"]) == 2
    assert main(["watch", "--pid", "1", "--", "ls"]) == 2
    assert main(["watch", "--", "no-such-command-at-all"]) == 2
    assert "no-such-command-at-all" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the training is torch's")
def test_a_real_training_that_starves_on_its_loader(tmp_path, capsys: pytest.CaptureFixture[str]):
    import psutil

    (tmp_path / "train.py").write_text(TRAINING)
    command = [sys.executable, str(tmp_path / "train.py")]
    assert main(["watch", "--json", "--interval", "500 ms", "--", *command]) == 0
    found = json.loads(capsys.readouterr().out)
    activity = found["activity"]
    # Workers that cannot prepare fast enough are busy, and the trainer is not, whatever else runs here.
    assert 0 < activity["main_cores"] < 0.5 * activity["job_cores"]
    assert len(activity["worker_cores"]) == len(activity["worker_states"]) == 2
    assert {tick["allowed"] for tick in found["ticks"]} == {len(os.sched_getaffinity(0))}
    assert activity["verdict"] in ("too few workers", "too few cores", UNKNOWN)
    # Hooks inside of it tell what its rank waited: nearly all of the time.
    assert found["waiting_for_loader_by_rank"].keys() == {"0"}
    assert found["waiting_for_loader_by_rank"]["0"] > 0.5
    gone = psutil.wait_procs([p for p in psutil.process_iter() if str(tmp_path) in " ".join(_words(p))], timeout=120)
    assert not gone[1]


def _words(process: object) -> list[str]:
    import psutil

    try:
        return process.cmdline()  # type: ignore[attr-defined, no-any-return]
    except psutil.Error:
        return []

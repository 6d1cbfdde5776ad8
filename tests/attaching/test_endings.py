"""What becomes of a program that ends early, never trains, is not hooked, or has a loader that is not torch's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from attach_kit import ENVIRON, PROGRAMS, SAMPLE_S, left_behind, script

from coresim.attaching.conduct import AttachRequest, attach
from coresim.errors import CoresimError

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def quick_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


def coresim(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coresim", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, **options)


def test_a_crash_is_told_with_its_last_line_and_code() -> None:
    done = coresim("recommend", "--", *script("crash.py"))
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("coresim: ") and "crash.py: ended with code 1 before all was measured" in last
    assert "(4 batches were asked for and optimizers stepped 3 times)" in last
    assert last.endswith("its last line: ValueError: no such label: 11")
    assert "Traceback" in done.stderr  # the program's own, as it came
    assert not left_behind("crash.py")


@pytest.mark.parametrize(
    "how, patience, words",
    [
        ("sleep", "3 s", "no DataLoader was iterated in 3 s; --patience waits longer"),
        ("evaluate", "15 s", "batches were asked for, and no optimizer stepped between them in 15 s; --patience"),
    ],
)
def test_a_program_that_never_trains_is_told_what_was_seen(how: str, patience: str, words: str, tmp_path: Path) -> None:
    kept = tmp_path / "job.json"
    done = coresim("measure", "--patience", patience, "-o", str(kept), "--", *script("never.py", how))
    assert done.returncode == 1
    assert words in done.stderr.strip().splitlines()[-1]
    assert done.stdout == "" and not kept.exists()
    assert not left_behind("never.py")


@pytest.mark.parametrize("flag", ["-I", "-S"])
def test_a_python_that_skips_the_hooks_is_not_attached(flag: str) -> None:
    with pytest.raises(CoresimError, match=r"^not attached: no Python of the command read sitecustomize"):
        attach(
            AttachRequest((sys.executable, flag, "-c", "import time; time.sleep(60)"), patience_s=2.0),
            bytearray().extend,
        )


def test_a_program_that_ends_without_hooks_says_so_too() -> None:
    with pytest.raises(CoresimError, match=r"ended with code 3 before all was measured \(not attached: .*-S skip it"):
        attach(AttachRequest((sys.executable, "-I", "-c", "raise SystemExit(3)")), bytearray().extend)


def test_a_command_that_cannot_be_started_is_one_line() -> None:
    done = coresim("recommend", "--", "no-such-program", "--flag")
    assert done.returncode == 2
    assert "cannot start 'no-such-program': No such file or directory; check the command after --" in done.stderr


@pytest.mark.parametrize("name", ["batch", "stream"])
def test_a_loader_of_ones_own_by_the_call_that_gives_a_batch(name: str) -> None:
    flags = ("recommend", "--quick", "--json", "--loader-hook", f"feeder:Feeder.{name}")
    done = coresim(*flags, "--", *script("own_loader.py", name))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # One thread prepares, so that a batch takes at least its CPU time, and the step is waited for least of all.
    assert told["wait_s"] + told["step_s"] >= 32 * SAMPLE_S
    assert told["loader_cpu_s"] == pytest.approx(32 * SAMPLE_S, rel=0.3)
    assert told["gpu_idle_observed"] > 0.3
    assert not left_behind("own_loader.py")


def test_a_hook_that_names_nothing_is_told() -> None:
    flags = ("recommend", "--loader-hook", "feeder:Feeder.no_such")
    done = coresim(*flags, "--", *script("own_loader.py", "batch"))
    assert done.returncode == 1
    said = "--loader-hook: feeder has no Feeder.no_such; check the name after the colon"
    assert done.stderr.strip().splitlines()[-1].endswith(said)


def test_a_checkpoint_that_is_written_meanwhile_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text((PROGRAMS / "plain.py").read_text().replace(
        "optimizer.zero_grad()", "optimizer.zero_grad(); torch.save(model.state_dict(), 'last.pt')"
    ))  # fmt: skip
    command = (sys.executable, "train.py", "--sample=0.001", "--step=0.01")
    done = coresim("measure", "--quick", "--budget", "2 s", "-o", "job.json", "--", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = next(line for line in done.stdout.splitlines() if "what looks like a checkpoint" in line)
    assert "last.pt" in told and "it was trained on repeated data: do not go on from it" in told
    assert "epoch 0 batch 0" in done.stderr and "epoch 0" not in done.stdout
    # The profile says no less than the program did.
    done = coresim("recommend", "job.json", "--json", cwd=tmp_path)
    assert done.returncode in (0, 4, 5), done.stderr
    today = json.loads(done.stdout)["today"]
    assert (today["workers"], today["program"].split()[1:]) == (2, list(command[1:]))


def test_ctrl_c_ends_the_program_and_all_its_processes() -> None:
    command = [sys.executable, "-m", "coresim", "recommend", "--", *script("plain.py", "--epochs=101")]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
    assert running.stderr is not None
    for line in running.stderr:
        if "batch 0" in line:  # it trains, with workers
            break
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == ""
    assert not left_behind("--epochs=101")


def test_all_ranks_and_their_launcher_are_ended_with_coresim() -> None:
    """Killed without a word, coresim takes the program with it."""
    command = [sys.executable, "-m", "coresim", "recommend", "--", *script("plain.py", "--epochs=102")]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert running.stderr is not None
    for line in running.stderr:
        if "batch 0" in line:
            break
    running.kill()
    running.wait()
    running.stderr.close()
    until = time.monotonic() + 60
    while left_behind("--epochs=102") and time.monotonic() < until:
        time.sleep(0.2)
    assert not left_behind("--epochs=102")

"""What becomes of a program that ends early, never trains or is not hooked, and what is told of one that is odd."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from attach_kit import PROGRAMS, answer, left_behind, run, script
from cli_kit import run as coresim
from kit import until

from coresim.attaching import conduct
from coresim.attaching.conduct import AttachRequest, attach
from coresim.errors import CoresimError

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("quick_programs")]
pytest.importorskip("torch")


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


def test_a_program_that_is_killed_is_told_with_the_signal() -> None:
    kills = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(CoresimError, match=r"ended by signal 9 before all was measured \(no DataLoader was iterated\)"):
        attach(AttachRequest((sys.executable, "-c", kills)), bytearray().extend)


def test_a_program_that_does_not_train_is_told_what_can_be_measured() -> None:
    remedy = r"no DataLoader was iterated\); measure its data set apart \(recommend --dataset FILE:NAME\), or name"
    with pytest.raises(CoresimError, match=remedy):
        attach(AttachRequest((sys.executable, "-c", "pass")), bytearray().extend)


def test_what_a_program_leaves_running_is_not_waited_for() -> None:
    """The end of the program is told although another process has its output still open; and that is ended too."""
    with pytest.raises(
        CoresimError, match=r"leaves\.py: ended with code 1 .*its last line: ValueError: no such label: 11"
    ):
        attach(AttachRequest(script("leaves.py")), bytearray().extend)
    assert not left_behind("left-by-leaves")


@pytest.mark.parametrize("words", [("never.py", "sleep"), ("slow_build.py",)])  # it builds for 40 s
def test_a_program_that_does_not_train_in_time_is_told_what_was_seen(words: tuple[str, ...], tmp_path: Path) -> None:
    kept = tmp_path / "job.json"
    done = coresim("measure", "--patience", "3 s", "-o", str(kept), "--", *script(*words))
    assert done.returncode == 1
    told = "no DataLoader was iterated in 3 s; --patience waits longer"
    assert told in done.stderr.strip().splitlines()[-1]
    assert done.stdout == "" and not kept.exists()
    assert not left_behind(words[0])


def test_a_program_that_only_evaluates_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to start: patience ends when it has evaluated for longer than it keeps its counts."""
    clock, heard = SimpleNamespace(monotonic=time.monotonic, sleep=time.sleep), bytearray()
    monkeypatch.setattr(conduct, "time", clock)

    def listen(said: bytes) -> None:
        heard.extend(said)
        if heard.count(b"evaluated") > 3:
            clock.monotonic = lambda: time.monotonic() + 1000.0

    words = (
        r"^[1-9]\d* batches were asked for, and no optimizer stepped between them in 15 min; --patience waits longer;"
        r" where no torch optimizer steps, measure the data set apart \(recommend --dataset FILE:NAME\)$"
    )
    with pytest.raises(CoresimError, match=words):
        attach(AttachRequest(script("never.py", "evaluate"), patience_s=900.0), listen)
    assert not left_behind("never.py")


@pytest.mark.parametrize("gives", [True, False])
def test_a_loader_may_be_calibrated_for_long_while_it_gives_batches(
    gives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look comes ten minutes less one second after the one before; slow batches add no share of a run's time."""
    now, shares = 0.0, []
    told = {7: {"rank": 0, "local_world": 1, "calibrated": 0.5, "prepared": 0, "error": None}}

    def sleep(_: float) -> None:
        nonlocal now
        now += conduct.SILENCE_S - 1.0
        told[7]["prepared"] += int(gives)

    monkeypatch.setattr(conduct, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    folder, program = SimpleNamespace(ranks=lambda: told, notes=lambda kind: {}), SimpleNamespace(exit_code=None)
    lead = conduct._Conductor(AttachRequest(("train",)), folder, program, lambda label, share: shares.append(share))
    if gives:
        lead._wait("loader", lambda: told[7]["prepared"] == 4)
        assert shares == pytest.approx([0.5, 0.7, 0.7, 0.7, 0.7])
    else:
        with pytest.raises(CoresimError, match=r"^the loader without the step: the program did not answer for 10 min"):
            lead._wait("loader", lambda: False)


def test_a_thread_that_reads_ahead_of_the_one_that_trains_is_told_apart() -> None:
    with pytest.raises(CoresimError, match=r"^one thread of the program reads its loader and another one trains"):
        attach(AttachRequest(script("ahead.py"), patience_s=150.0), bytearray().extend)
    assert not left_behind("ahead.py")


def test_batches_of_all_sizes_and_with_broken_samples_are_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program goes on after a batch that raises an error, and after an empty one."""
    monkeypatch.setenv("SAMPLE_S", "0.001")
    monkeypatch.setenv("STEP_S", "0.010")
    found = run(script("ragged.py"))
    today = found.profile.today
    assert today is not None and (today.batch_least, today.batch_most) == (0, 40)
    assert today.batch_size == found.profile.batch_size == round(today.batch_mean or 0)
    told = {warning.what: warning for warning in found.profile.warnings}
    assert f"each for one of {today.batch_size}" in told["the program's batches differ in size"].value
    broken = told["samples that cannot be prepared were left out"]
    assert "the first with ValueError: broken sample" in broken.value
    assert found.ranks[0]["errors"] >= 1 and "the program went on after" in broken.remedy
    assert not left_behind("ragged.py")


def test_a_program_from_standard_input_is_run(tmp_path: Path) -> None:
    piped = "import sys, plain\nsys.argv[1:] = ['--sample=0.001', '--step=0.01']\nplain.main()"
    kept = str(tmp_path / "job.json")
    flags = ("measure", "--quick", "--budget", "1.5 s", "--json", "-o", kept, "--", sys.executable, "-", "--piped")
    done = coresim(*flags, input=piped, env={**os.environ, "PYTHONPATH": str(PROGRAMS)})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["workload"], told["today"]["workers"]) == (f"{Path(sys.executable).name} -", 2)
    assert not left_behind("--piped")


def test_a_program_that_is_an_argument_is_told_in_one_line() -> None:
    done = coresim("measure", "--", sys.executable, "-c", "import sys\n\nsys.exit(3)")
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(
        "-c 'import sys sys.exit(3)': ended with code 3 before all was measured (no DataLoader was iterated)"
    )


def test_an_empty_standard_input_is_told_with_a_remedy() -> None:
    done = coresim("measure", "--", sys.executable, "-", stdin=subprocess.DEVNULL)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("standard input gave it no program that trains: add < train.py, or name the file")


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
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


def test_samples_that_torch_prepares_with_several_threads_are_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What measures is forked from the trainer, whose threads it has not: counting on them it would wait for ever."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = run(script("transforms.py"))
    assert "the loader without the step" in found.phases
    assert found.profile.today is not None and found.profile.today.workers == 2
    assert found.profile["prepare.sample"].mean > 0.0
    assert answer(found.profile).point.cores >= 1
    assert not left_behind("transforms.py")


def training(folder: Path, epochs: int) -> subprocess.Popen[str]:
    """A program that is measured and trains, with workers; temporary files are in the folder."""
    running = subprocess.Popen(
        [sys.executable, "-m", "coresim", "recommend", "--", *script("plain.py", f"--epochs={epochs}")],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    assert running.stderr is not None
    for line in running.stderr:
        if "batch 0" in line:
            break
    assert list(folder.glob("coresim-*"))
    return running


@pytest.mark.parametrize(
    ("number", "epochs"), [(signal.SIGINT, 101), (signal.SIGTERM, 103)], ids=["ctrl-c", "terminated"]
)
def test_a_signal_ends_the_program_and_all_its_processes_and_leaves_no_file(
    number: signal.Signals, epochs: int, short_folder: Path
) -> None:
    running = training(short_folder, epochs)
    running.send_signal(number)
    out, _ = running.communicate(timeout=200)
    assert running.returncode == 130
    assert out == ""
    assert not left_behind(f"--epochs={epochs}")
    left = [path.name for path in short_folder.iterdir()]
    assert not [name for name in left if not name.startswith("torch")]  # of torch's own compiler


def test_all_ranks_and_their_launcher_are_ended_with_coresim(short_folder: Path) -> None:
    """Killed without a word, coresim takes the program with it."""
    running = training(short_folder, 102)
    running.kill()
    running.communicate(timeout=200)
    until(lambda: not left_behind("--epochs=102"))

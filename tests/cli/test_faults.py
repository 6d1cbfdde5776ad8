"""The worst day: hostile files, closed and full streams, signals at any moment, processes that cannot answer."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from faulty import FLEET, SIMPLE, disk_of, give_files, told
from shared import SCENARIO

from coresim.cli.main import main
from coresim.errors import CoresimError, InputError
from coresim.files import MOST_BYTES, locked, read_json, read_text, read_toml, write_json
from coresim.measure.processes import Child, HangError, Link
from coresim.report.results import read_results

READERS = (
    ("recommend", "FILE"), ("simulate", "FILE"), ("whatif", "FILE"), ("report", "FILE"), ("compare", "FILE", "FILE"),
    ("plan", "FILE"), ("plan", "F", "--results", "FILE"), ("machines", "--file", "FILE"),
    ("validate", "--grid", "FILE"),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    give_files(tmp_path, monkeypatch)
    return tmp_path


# Files

HOSTILE: dict[str, str | bytes] = {
    "digits.toml": f"[workload]\nbatch_size = {'9' * 5000}\n",
    "digits.json": f'{{"workload": {{"batch_size": {"9" * 5000}}}}}',
    "hex.toml": f"[workload]\nbatch_size = 0x{'f' * 5000}\n",
    "deep.toml": f"a = {'[' * 5000}{']' * 5000}",
    "deep.json": f'{{"a": {"[" * 5000}{"]" * 5000}}}',
    "dotted.toml": f"{'a.' * 500}b = 1",
    "surrogate.json": '{"workload": {"batch_size": 64, "preprocess": "5 ms"}, "accelerator": {"name": "\\ud800"}}',
    "surrogate_key.json": '{"\\udfff": 1}',
    "infinite.json": '{"workload": {"batch_size": 1e999}}',
    "nan.json": '{"workload": {"batch_size": NaN}}',
    "large.toml": "[host]\ncores = 1e300\n",
    "small.toml": "[host]\ncores = 1e-310\n",
    "date.toml": "[host]\ncores = 2020-13-45\n",
    "field.csv": f"id,gpu,gpu_count,physical_cores\n{'x' * 200_000},a100,1,{'9' * 5000}\n",
    "nul.csv": "id,gpu\0,gpu_count,physical_cores\n",
    "empty.toml": "",
    "empty.json": "",
    "latin.toml": b'[accelerator]\nname = "caf\xe9"\n',
    "utf16.json": '{"format": "coresim-profile"}'.encode("utf-16"),
    "newer.json": '{"format": "coresim-profile", "schema_version": 99}',
    "older.json": '{"format": "coresim-profile", "schema_version": 0}',
    "list.json": "[1, 2]",
    "steering.toml": '[accelerator]\nname = "\\u001b[2J"\n',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    content = HOSTILE[name]
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for words in READERS:
        if not content and "--results" in words:  # a table without a row yet
            continue
        code, out, last = told(capsys, *(word.replace("FILE", name) for word in words))
        assert (code, out) == (2, "") and last.startswith("coresim: ") and len(last) < 1300, (words, last)
        assert name in last or "--grid" in words


def test_what_is_read_is_finite_and_within_bounds(tmp_path: Path) -> None:
    for name, read in (("digits.json", read_json), ("hex.toml", read_toml), ("small.toml", read_toml)):
        path = tmp_path / name
        path.write_text(str(HOSTILE[name]))
        with pytest.raises(InputError, match=r"integer|a number is 0 or from 1e-100 to 1e\+18 in size"):
            read(path)


@pytest.mark.parametrize("words", READERS)
def test_what_is_no_regular_file_is_refused_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    os.mkfifo("pipe")
    for name in ("pipe", "/dev/zero", "."):
        code, out, last = told(capsys, *(word.replace("FILE", name) for word in words))
        assert (code, out) == (2, "") and (name in last), last


def test_a_file_that_is_too_large_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(InputError, match=r"large\.json: larger than 64 MB"):
        read_text(tmp_path / "large.json")


def test_marks_and_line_ends_of_another_system_are_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "theirs.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SIMPLE.replace("\n", "\r\n").encode())
    assert read_text(path) == SIMPLE and read_toml(path)["workload"]["batch_size"] == 8


def test_a_path_that_is_none_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("fleet.toml").write_text('machines = ["all"]\n' + FLEET.replace("scenario.toml", "a\\u0000b"))
    assert told(capsys, "plan", "fleet.toml")[0] == 2
    with pytest.raises(InputError, match="not a possible path"):
        write_json("a\0b", {})


def test_a_name_of_odd_bytes_is_answered_and_written(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.toml")
    Path(name).write_text(SCENARIO)
    done = run("simulate", name, "--steps", "20", "--replications", "1", "--engine", "reference")
    assert done.returncode == 0 and "GPU idle" in done.stdout
    write_json("out.json", {"command": name})
    assert read_json("out.json") == {"command": "caf?.toml"}


# Streams


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coresim", *words], text=True, timeout=200, check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


def shell(command: str) -> subprocess.CompletedProcess[str]:
    words = f'"{sys.executable}" -m coresim {command}'
    return subprocess.run(["/bin/sh", "-c", words], capture_output=True, text=True, timeout=200, check=False)


def test_a_closed_stdout_is_told() -> None:
    done = shell("catalogue >&-")
    assert done.returncode == 1
    assert done.stderr == "coresim: cannot write the answer: stdout is closed; send it elsewhere\n"


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", pytest.param("2>&- <&-", marks=pytest.mark.slow)])
def test_what_cannot_be_said_on_stderr_does_not_hold_the_answer_back(folder: Path, stream: str) -> None:
    done = shell(f"simulate scenario.toml --steps 20 --replications 1 --engine reference {stream}")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Simulated")
    done = shell(f"machines --file no-such.csv {stream}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_reader_that_went_away_is_told_nothing() -> None:
    """As behind ``| head``, which reads its lines and ends."""
    reader, writer = os.pipe()
    os.close(reader)
    done = run("catalogue", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", ["doctor", "--version", "--help", "recommend --help"])
def test_a_full_disk_is_told_whatever_is_printed(command: str) -> None:
    done = shell(f"{command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "coresim: cannot write the answer: No space left on device; send it elsewhere\n"


# Disks


@pytest.mark.parametrize("size", [0, 1000])
def test_a_plan_is_printed_though_its_file_is_not_whole(
    folder: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    words = ["plan", "F", "--jobs", "1", "--results", "rows.csv"]
    with disk_of(size):
        code = main(words)
    out, err = capsys.readouterr()
    kept = len(read_results("rows.csv"))
    assert code == 1 and out.startswith("Whole mix") and kept == (1 if size else 0)
    assert f"rows.csv is incomplete: it has {kept} of 2 rows; free disk space" in err
    assert main(words) == 0
    assert capsys.readouterr().out == out and len(read_results("rows.csv")) == 2


def test_a_line_that_was_cut_off_spoils_no_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "F", "--jobs", "1", "--results", "rows.csv"]
    assert main(words) == 0
    whole = Path("rows.csv").read_bytes()
    Path("rows.csv").write_bytes(whole[:-100])
    assert main(words) == 0
    assert Path("rows.csv").read_bytes() == whole


def test_a_figure_that_does_not_fit_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "scenario.toml", "--steps", "20", "--replications", "1", "--gantt", "first.svg")
    with disk_of(1000):
        code, _, last = told(capsys, *words)
    assert code == 1 and "first.svg" in last
    assert not Path("first.svg").exists()


def test_the_second_of_two_validations_of_one_ledger_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked("ledger.json"):
        code, out, last = told(capsys, "validate", "--quick", "-o", "ledger.json")
    assert (code, out) == (2, "")
    assert last == "coresim: ledger.json: another coresim writes it now; wait, or name another file"
    with locked("ledger.json"):  # whoever held it has let go, and left nothing
        pass
    assert not list(folder.glob("*ledger*")) and not list(folder.glob(".*ledger*"))


def test_a_home_that_cannot_be_written_is_no_reason_not_to_answer(folder: Path) -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    done = run("recommend", "simple.toml", "--max-cores", "2", env={**known, "HOME": "/proc"})
    assert done.returncode in (0, 4) and "Traceback" not in done.stderr and " per GPU" in done.stdout


def test_two_runs_at_once_answer_alike(folder: Path) -> None:
    words = [sys.executable, "-m", "coresim", "plan", "F", "--jobs", "1", "--results", "rows.csv"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0] and len(read_results("rows.csv")) == 2


# Signals

BOOT = """
import os, signal, sys
from coresim.cli.entry import main
left, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
def hook(event, args):
    global left
    if event in ("import", "open", "exec", "compile"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)
sys.addaudithook(hook)
code = main()
if left > 0:
    print("left", left, file=sys.stderr)
sys.exit(code)
"""


def interrupted_after(events: int, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    # Tests that run under nohup hand on that SIGHUP is ignored.
    heeding = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n{BOOT}"
    command = [sys.executable, "-c", heeding, str(events), str(number), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_signal_at_any_moment_is_130(folder: Path) -> None:
    words = ("recommend", "simple.toml", "--max-cores", "2")
    whole = interrupted_after(10**9, signal.SIGINT, *words)
    count = 10**9 - int(whole.stderr.split()[-1])
    assert whole.returncode in (0, 4) and count > 500
    # Most of the first half second is imports; each of them is a moment at which a signal may come.
    rng = random.Random(20)
    for events in (1, 2, 3, *rng.sample(range(4, count), 6)):
        done = interrupted_after(events, rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), *words)
        assert (done.returncode, done.stdout) == (130, ""), (events, done)
        said = [line for line in done.stderr.splitlines() if not line.endswith("...")]
        assert said == ["coresim: interrupted; nothing was left behind"], (events, done.stderr)


def test_an_interrupt_does_not_wait_for_a_long_simulation(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compiled part heeds no signal: were it waited for, it would be the test's own limit that ends it."""
    begun, over = threading.Event(), threading.Event()

    def engine(*_: object) -> None:
        begun.set()
        over.wait()
        raise CoresimError("nobody asks any more")

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("coresim.sim.fast.simulate", engine)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        assert told(capsys, "simulate", "scenario.toml")[:2] == (130, "")
    finally:
        over.set()


def test_nohup_keeps_what_a_terminal_that_closes_would_end(folder: Path) -> None:
    words = [sys.executable, "-c", BOOT, "300", str(int(signal.SIGHUP)), "simulate", "scenario.toml", "--steps", "20"]
    done = subprocess.run(["nohup", *words], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and done.stdout.startswith("Simulated"), done.stderr
    assert "left" not in done.stderr.split()  # the signal came


def test_an_interrupt_in_code_from_a_string_is_130_too(tmp_path: Path) -> None:
    """As dataclasses are made while modules are imported: Python then ends itself by SIGINT, dealt with or not."""
    (tmp_path / "told.py").write_text("""
import sys
import coresim.cli.main
from coresim.cli import entry, process

def interrupted_within_a_string():
    process.interruptible()
    try:
        exec("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(600)")
    except KeyboardInterrupt:
        return 130

coresim.cli.main.main = interrupted_within_a_string
sys.exit(entry.main())
""")
    command = [sys.executable, "-m", "told"]
    assert subprocess.run(command, cwd=tmp_path, timeout=200, check=False).returncode == 130


# Processes


def sends_a_lock(link: Link) -> None:
    queue: multiprocessing.Queue[object] = multiprocessing.Queue()
    queue.put(threading.Lock())
    queue.get()


def sends_what_is_no_module_s(link: Link) -> None:
    queue: multiprocessing.Queue[object] = multiprocessing.Queue()
    queue.put(lambda: None)
    queue.get()


def sleeps(link: Link) -> None:
    time.sleep(1000)


@pytest.mark.parametrize(
    ("job", "kind"), [(sends_a_lock, "'_thread.lock' object"), (sends_what_is_no_module_s, "local object")]
)
def test_what_cannot_be_pickled_is_named_and_not_waited_for(job: object, kind: str) -> None:
    # Were it waited for, it would be the test's own limit that ends it.
    with Child(job, doing="sending batches") as child, pytest.raises(InputError) as caught:  # type: ignore[arg-type]
        child.receive(timeout=3600)
    assert f"cannot pickle {kind}" in str(caught.value) and "sending batches" in str(caught.value)


def test_a_hang_says_the_time_that_was_given() -> None:
    with Child(sleeps, doing="sleeping") as child, pytest.raises(HangError, match=r"no answer for 0\.3 s"):
        child.receive(timeout=0.3)

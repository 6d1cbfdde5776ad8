"""Cli and all that it reads and writes: hostile files, names of odd bytes, full disks, two at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import run
from faulty import FLEET, disk_of, told
from shared import SCENARIO

from coresim.cli.main import main
from coresim.errors import InputError
from coresim.files import locked, read_json, read_toml, write_json
from coresim.report.results import read_results

READERS = (
    ("recommend", "FILE"), ("simulate", "FILE"), ("whatif", "FILE"), ("report", "FILE"), ("compare", "FILE", "FILE"),
    ("plan", "FILE"), ("plan", "F", "--results", "FILE"), ("machines", "--file", "FILE"),
    ("validate", "--grid", "FILE"),
)  # fmt: skip


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

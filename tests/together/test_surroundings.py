"""Cli, fleet and report: the environment, folders that are gone, packages that are missing, hostile names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from faulty import told
from made_up import HOST, RECORDED, profile

from coresim.cli.main import main
from coresim.model.warning import HostWarning
from coresim.units import visible

pytestmark = pytest.mark.usefixtures("folder")

SIMULATE = ("simulate", "scenario.toml", "--steps", "20", "--replications", "1", "--engine", "reference")


#: No home, no search path, no place for temporary files, a terminal of few columns and no letters beyond ASCII.
BARE = {
    "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "TZ": "Pacific/Kiritimati", "COLUMNS": "20",
    "NO_COLOR": "1", "TERM": "dumb", "PATH": "", "TMPDIR": "/no/such/folder",
}  # fmt: skip


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script in which ``$coresim`` is the command, and stdin is closed."""
    words = f'"{sys.executable}" -m coresim'
    return subprocess.run(
        ["/bin/sh", "-c", f"exec <&-; {script.replace('$coresim', words)}"], env=environment,
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def test_nothing_around_a_command_changes_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    usual = told(capsys, *SIMULATE)[1]
    bare = shell(f"$coresim {' '.join(SIMULATE)}", **BARE)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == usual.encode("ascii", "backslashreplace").decode()


def test_a_folder_that_is_gone_is_needed_for_nothing_but_its_files(folder: Path) -> None:
    words = " ".join(SIMULATE).replace("scenario.toml", f"{folder}/scenario.toml")
    (folder / "gone").mkdir()
    done = shell(f"cd gone && rmdir ../gone && $coresim {words} && $coresim {words} --trace t.json", **os.environ)
    assert done.returncode == 2 and done.stdout.count("Simulated") == 1
    (said,) = done.stderr.splitlines()
    assert said == "coresim: cannot write t.json: No such file or directory; choose a folder that you can write to"


def test_what_needs_torch_says_so_where_there_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, last = told(capsys, "validate", "--workload", "tiny", "--quick")
    assert (code, out) == (3, "") and last.startswith("coresim: validate: torch is not installed")
    assert last.endswith("; pip install torch") and not list(Path().glob("*ledger*"))


#: It clears a terminal and turns letters round.
NAME = "a\x1b[2J\u202eb\x9bc"
SHOWN = r"a\x1b[2J\u202eb\x9bc"


@pytest.fixture
def named(folder: Path) -> None:
    """A profile, and machines, with such names wherever their texts are free."""
    profile(
        workload=NAME,
        loader=NAME,
        host=replace(HOST, cpu_model=NAME),
        accelerator=replace(RECORDED, provenance=f"catalogue: {NAME}"),
        warnings=(HostWarning(NAME, NAME, NAME),),
    ).save("named.json")
    Path("machines.csv").write_text(f"id,gpu,gpu_count,physical_cores,cpu\nown:x,a100,8,96,{NAME}\n", newline="")


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    "words",
    [
        ("recommend", "named.json", "--max-cores", "2", "--verbose", "--set", "accelerator.step=60 ms"),
        ("whatif", "named.json", "--remedy", "more-cores"),
        ("simulate", "named.json", "--steps", "20", "--replications", "1"),
        ("compare", "named.json", "named.json"),
        ("report", "named.json", "--max-cores", "2", "-o", "out.md", "--set", "accelerator.step=60 ms"),
        ("machines", "--file", "machines.csv"),
        ("recommend", f"no-such-{NAME}.toml"),
        ("plan", "F", "--jobs", NAME),
        ("simulate", "scenario.toml", "--set", f"accelerator.name={NAME}"),
    ],
)
def test_no_name_steers_a_terminal(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        main([*words])
    out, err = capsys.readouterr()
    assert visible(out) == out and visible(err) == err
    assert SHOWN in out + err
    for written in Path().glob("out.md"):
        text = written.read_text()
        assert visible(text) == text and SHOWN in text.replace("\\\\", "\\").replace("\\[", "[")


def test_what_is_not_steering_stays_as_it_is() -> None:
    text = "µs, ±3 %, 数据集, naïve, 🚀\nsecond line"
    assert visible(text) == text and visible(NAME) == SHOWN


@pytest.mark.slow
def test_names_in_letters_that_a_font_lacks_are_drawn_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    stage = '[[stage]]\nname = "解码 & <b>"\nservice = "2 ms"\nservers = 2\n'
    Path("own.toml").write_text(f'[workload]\nbatch_size = 4\n[accelerator]\nstep = "10 ms"\n{stage}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for words in (("simulate", "own.toml", "--cores", "4", "--gantt", "own.svg"),
                      ("report", "own.toml", "--max-cores", "2", "-o", "own.pdf")):  # fmt: skip
            assert told(capsys, *words)[0] in (0, 4)
    assert not re.search(r"<b>", Path("own.svg").read_text())

"""Cli and all that writes: a file that cannot be written is told before the work or behind the answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attaching.test_watch import tick
from faulty import disk_of, give_files, told
from made_up import SETTING, ledger, point, profile

import coresim.api  # noqa: F401 (what imports the campaign while it is made up would keep that)
from coresim.cli.latest import keep, latest
from coresim.cli.main import main
from coresim.errors import CoresimError, InputError
from coresim.model.activity import Tick
from coresim.validate.ledger import Ledger, load_ledger

SIMULATE = ("simulate", "scenario.toml", "--steps", "20", "--replications", "1")
REPORT = ("report", "simple.toml", "--max-cores", "2", "-o")
PLAN = ("plan", "F", "--jobs", "1")
MEASURED = ("--step-time", "50 ms")
WATCH = ("watch", "--pid", str(os.getpid()), "--ticks", "out.txt")
VALIDATE = ("validate", "--grid", "grid.toml")
#: The words of each command that writes a file; the last one is its name.
WRITERS = (
    (*SIMULATE, "--trace", "out.json"), (*SIMULATE, "--gantt", "out.svg"),
    (*REPORT, "out.html"), (*REPORT, "out.md"), (*REPORT, "out.pdf"),
    (*PLAN, "--parquet", "out.parquet"),
    ("measure", *MEASURED, "-o", "out.json"),
    ("recommend", *MEASURED, "--max-cores", "2", "--save", "out.json"),
    (*VALIDATE, "--figure", "out.svg"),
)  # fmt: skip
#: These keep what they had until then.
GROWING = ((*PLAN, "--results", "out.csv"), (*VALIDATE, "-o", "out.json"), WATCH)
GRID = '[[block]]\nworkload = "tiny"\nbatch_size = 10\nworkers = 2\nratio = 1.0\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the commands read; what they would measure is made up."""
    give_files(tmp_path, monkeypatch)
    Path("grid.toml").write_text(GRID)
    found = ledger([point(SETTING, 0.3, 0.3)])
    monkeypatch.setattr("coresim.measure.campaign.run_campaign", lambda *_, **__: profile())
    monkeypatch.setattr("coresim.measure.campaign.make_data", lambda *_: None)
    monkeypatch.setattr("coresim.validate.session.validate", lambda *_, **__: found)
    monkeypatch.setattr("coresim.cli.validate._need_torch", lambda: None)
    monkeypatch.setattr("coresim.attaching.watch.watch", lambda *_: (tick(float(second)) for second in range(1, 9)))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def name_of(words: tuple[str, ...]) -> str:
    return " ".join((words[0], *words[-2:]))


def needs_pyarrow(words: tuple[str, ...]) -> None:
    if "--parquet" in words:
        pytest.importorskip("pyarrow")


@pytest.mark.parametrize("words", [*WRITERS, *GROWING], ids=name_of)
def test_a_place_where_nothing_can_be_written_is_told_before_the_work(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_pyarrow(words)
    for part in ("measure.campaign.run_campaign", "validate.session.validate", "attaching.watch.watch"):
        monkeypatch.setattr(f"coresim.{part}", lambda *_, **__: pytest.fail("it went to work"))
    *before, name = words
    os.mkdir(f"folder{Path(name).suffix}")
    os.mkfifo(f"pipe{Path(name).suffix}")
    there = sorted(os.listdir())
    for place in (f"no/{name}", f"folder{Path(name).suffix}", f"pipe{Path(name).suffix}", f"/proc/{name}"):
        code = main([*before, place])
        out, err = capsys.readouterr()
        # Simulating would be announced on stderr.
        assert (code, out, err.count("\n")) == (2, "", 1) and place in err, err
    assert sorted(os.listdir()) == there


@pytest.mark.slow
@pytest.mark.parametrize("words", WRITERS, ids=name_of)
def test_a_full_disk_is_told_behind_the_answer(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    needs_pyarrow(words)
    before = {name: Path(name).read_bytes() for name in os.listdir()}
    with disk_of(15_000 if words[0] == "validate" else 100):  # its ledger fits
        code, out, last = told(capsys, *words)
    assert code == 1 and len(out) > 20, (out, last)
    assert last.startswith("coresim: ") and words[-1] in last and "File too large" in last
    assert {name: Path(name).read_bytes() for name in os.listdir() if name not in ("ledger.json", "state")} == before


@pytest.mark.parametrize(("room", "kept"), [(5, 0), (3_000, 1)])
def test_trials_that_do_not_fit_are_answered_and_those_that_did_are_kept(
    room: int, kept: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up between two trials: those after it are made, and answered."""
    made: list[int] = []

    def validated(grid: Any, *_: Any, save: Callable[[Ledger], None], **__: Any) -> Ledger:
        found = ledger([])
        for number, setting in enumerate(grid.settings):
            # Another length for each, so that no two ledgers of the same size are taken for each other.
            found = replace(found, points=(*found.points, point(setting, 0.3, *[0.3 + number / 100] * setting.repeats)))
            save(found)
            made.append(len(json.dumps(found.to_dict(), indent=1)))
        return found

    Path("grid.toml").write_text(GRID + GRID.replace("workers = 2", "workers = 4"))
    monkeypatch.setattr("coresim.validate.session.validate", validated)
    with disk_of(room):
        code, out, last = told(capsys, *VALIDATE, "-o", "out.json")
    assert len(made) == 2 and (made[0] < room < made[1]) == bool(kept), made
    assert code == 1 and "ledger: out.json (not whole)" in out and ": 4w/2c" in out, out
    assert last.startswith("coresim: cannot write out.json: File too large; ") and last.count("out.json") == 2
    assert f"; {kept} of 2 settings are kept in out.json; make room there" in last
    assert Path("out.json").exists() == bool(kept)
    assert not kept or load_ledger("out.json").points[0].setting.workers == 2
    assert not list(Path().glob(".out*"))


def test_a_figure_is_drawn_of_a_ledger_that_could_not_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise CoresimError("cannot write out.json: No space left on device")

    monkeypatch.setattr(Ledger, "save", full)
    code, out, last = told(capsys, *VALIDATE, "-o", "out.json", "--figure", "out.svg")
    assert code == 1 and out and "out.json" in last and "</svg>" in Path("out.svg").read_text()


def test_lines_of_samples_that_do_not_fit_end_no_training(capsys: pytest.CaptureFixture[str]) -> None:
    with disk_of(150):
        code, out, last = told(capsys, *WATCH)
    assert code == 1 and out.startswith("Verdict: ")
    assert last == "coresim: out.txt: File too large; it keeps the samples until then"
    assert Path("out.txt").stat().st_size <= 150 and Path("out.txt").read_text().splitlines()[0].split()[0] == "1.0"


@pytest.mark.parametrize(("samples", "code"), [(0, 130), (1, 0)])
def test_who_ends_a_watch_gets_what_was_seen(
    samples: int, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Iterator[Tick]:
        yield from (tick(1.0) for _ in range(samples))
        raise KeyboardInterrupt

    monkeypatch.setattr("coresim.attaching.watch.watch", interrupted)
    found, out, last = told(capsys, *WATCH)
    assert found == code and out.startswith("Verdict: ") == bool(samples)
    assert samples or last == "coresim: interrupted; nothing was left behind"


@pytest.mark.parametrize("state", ["/proc/no-such", "~/state"])
def test_a_validation_that_cannot_be_kept_for_later_is_answered(
    state: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``~/state``: of a user who has no home."""
    monkeypatch.setenv("XDG_STATE_HOME", state)
    code, out, last = told(capsys, *VALIDATE, "-o", "out.json")
    assert code in (0, 5) and "ledger: out.json" in out
    assert "set XDG_STATE_HOME" in last and last.endswith("; recommend will not show this validation")
    assert latest("host", "title") is None and not Path("~").exists()
    with pytest.raises(InputError, match="set XDG_STATE_HOME"):
        keep(ledger([point(SETTING, 0.3, 0.3)]))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "No space left on device; check the current folder, and the room for"),
        (FileNotFoundError(2, "No such file or directory", "/x/y"), "/x/y: No such file or directory; check the path"),
        (MemoryError(), "out of memory: ask for fewer workers"),
        (CoresimError("two\nlines \x1b[31mred"), r"two lines \x1b[31mred"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    error: Exception, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("coresim.measure.campaign.run_campaign", fails)
    code, out, last = told(capsys, "measure", *MEASURED)
    assert (code, out) == (1, "") and last.startswith(f"coresim: {words}")

"""Option 3's stages in threads: order, room, what each part costs, and how they end."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit import ThreadsWork, Works, numbers, running, subject_of, until

from coresim.attaching.today import own_options
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.measure import notes as notes_module
from coresim.measure import staged
from coresim.measure.rig import Rig
from coresim.measure.staged import Buffer, Closed, StagedSubject, copied
from coresim.model.option import STAGED_LOADER, Option
from coresim.model.profile import Profile, load_document
from coresim.workloads.base import Workload, mapped
from coresim.workloads.named import WorkloadSpec


def test_a_buffer_keeps_the_order_and_its_room() -> None:
    buffer = Buffer(2)
    buffer.put(0, "a")
    buffer.put(1, "b")
    late = threading.Thread(target=buffer.put, args=(3, "d"), daemon=True)  # it is not its turn
    full = threading.Thread(target=buffer.put, args=(2, "c"), daemon=True)  # there is no room
    late.start()
    full.start()
    assert [buffer.take() for _ in range(4)] == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    buffer.close()
    for ended in (buffer.take, lambda: buffer.put(4, "e")):
        with pytest.raises(Closed):
            ended()


def test_who_waits_at_a_buffer_ends_when_it_is_closed() -> None:
    buffer, ended = Buffer(1), []

    def wait() -> None:
        try:
            buffer.take()
        except Closed:
            ended.append(True)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    buffer.close()
    for thread in threads:
        thread.join(120.0)
    assert ended == [True, True] and not any(thread.is_alive() for thread in threads)


def test_a_slow_fetch_holds_up_no_batch() -> None:
    released = threading.Event()

    class Slow(list[int]):
        def __getitem__(self, index: int) -> int:  # type: ignore[override]
            if index == 0:
                released.wait(120.0)
            return index

    with running(subject_of("staged", Slow(range(12)), 4), workers=1, seed=3) as pipe:
        try:
            first = [value for batch in numbers(pipe, 3) for value in batch]
            released.set()
            # How soon its thread gets a turn is the scheduler's business.
            came = next(number for number in range(10_000) if 0 in numbers(pipe, 1)[0])
        finally:
            released.set()
    assert 0 not in first and came >= 0


#: A power of two, so that sums of made-up times are exact.
MS = 2.0**-10


class Steps(Workload):
    """The fetch waits, all else works, each for a time of its own on a clock that this alone moves."""

    batch_size = 4

    def __init__(self, folder: Path, works: Works) -> None:
        super().__init__(folder)
        self.works = works

    def __len__(self) -> int:
        return 8

    def fetch(self, index: int) -> int:
        self.works.work(0.0, wait=32 * MS)
        return index

    def decode(self, raw: int) -> int:
        self.works.work(2 * MS)
        return raw

    def transform(self, x: int, rng: np.random.Generator) -> int:
        self.works.work(MS)
        return x

    def collate(self, samples: list[Any]) -> Any:
        self.works.work(4 * MS)
        return Copied(self.works)


class Copied:
    """A batch that works while it is copied."""

    def __init__(self, works: Works) -> None:
        self.works = works

    def copy(self) -> str:
        self.works.work(8 * MS)
        return "copied"


def test_each_part_of_a_batch_is_noted_where_it_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = ThreadsWork()
    for module in (staged, notes_module):
        monkeypatch.setattr(module, "time", works.time)
    work = Steps(tmp_path, works)
    subject = StagedSubject(work, work.collate)
    assert subject.threads and subject.loader == "stages in threads of our own"
    with running(subject, workers=1, fetchers=2) as pipe:
        found = [pipe.next() for _ in range(3)]
    assert {batch for batch, _ in found} == {"copied"}
    for _, note in found:
        assert note.fetch >= 4 * 32 * MS  # other threads may have moved the clock meanwhile
        # The fetch is no part of the time that the worker's thread takes; its CPU time is a sample's.
        assert list(note.cpu) == [3 * MS] * 4
        assert (note.collate, note.copy) == (4 * MS, 8 * MS)
        assert note.made - note.began >= sum(note.wall) + note.collate + note.copy
        assert all(wall >= 3 * MS for wall in note.wall)


def test_the_last_stage_gives_a_copy(tmp_path: Path) -> None:
    tensor = [np.zeros(3), {"x": (np.ones(2), "text")}, None]
    again = mapped(tensor, copied)
    assert again is not tensor and again[0] is not tensor[0] and again[1]["x"][0] is not tensor[1]["x"][0]
    assert (again[0] == 0).all() and (again[1]["x"][0] == 1).all() and again[1]["x"][1] == "text" and again[2] is None

    class Device:
        moved: int = 0

        def transfer(self, batch: Any) -> Any:
            self.moved += 1
            return "there", batch

    device = Device()
    with running(subject_of("staged", range(12))) as pipe:
        pipe.transfer = device.transfer  # type: ignore[attr-defined]
        found = [pipe.next()[0] for _ in range(12)]
    assert found[-1][0] == "there" and device.moved >= 6


def test_what_one_thread_raises_ends_all() -> None:
    threads = threading.active_count()

    class Broken(list[int]):
        def __getitem__(self, index: int) -> int:  # type: ignore[override]
            raise ValueError("torn")

    with running(subject_of("staged", Broken(range(4))), workers=3) as pipe:
        for _ in range(2):  # it is told as often as one asks
            with pytest.raises(ValueError, match="torn"):
                pipe.next()
        until(lambda: threading.active_count() == threads)


class Table:
    """A data set of the user's own, of which nothing is known but its samples."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(4, index)


class Broken(Table):
    def __getitem__(self, index: int) -> np.ndarray:
        raise ValueError("no such row")


class Ragged(Table):
    def __getitem__(self, index: int) -> np.ndarray:
        return np.zeros(index + 1)


class Stream:
    def __iter__(self) -> Any:
        return iter(range(100))


def test_a_data_set_of_the_user_s_own_runs_as_stages_and_a_stream_does_not() -> None:
    rows = Rig(WorkloadSpec(f"{__file__}:Table", "", 4)).subject(threads=True)
    with running(rows, workers=2, fetchers=2) as pipe:
        batches = [np.asarray(pipe.next()[0]) for _ in range(4)]
    assert all(batch.shape == (4, 4) for batch in batches)
    assert len({int(row[0]) for batch in batches for row in batch}) == 16
    stream = Rig(WorkloadSpec(f"{__file__}:Stream", "", 4)).subject(threads=True)
    with running(stream, workers=1, fetchers=1) as pipe, pytest.raises(InputError, match="__getitem__"):
        pipe.next()


def test_an_answer_of_option_3_rests_on_stages_that_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = str(tmp_path / "profile.json")
    job = ["--dataset", f"{__file__}:Table", "--batch-size", "4", "--step-time", "5ms", "--budget", "3 s"]
    assert main(["recommend", *job, "--options", "3", "--max-cores", "4", "--save", kept, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metadata"]["loader"] == STAGED_LOADER and {answer["option"] for answer in told["options"]} == {3}
    found = load_document(Path(kept))
    assert isinstance(found, Profile) and found.loader == STAGED_LOADER and own_options(found) == (Option.STAGED,)
    assert {"lock.passing", "scaling.2", "prepare.sample"} <= {one.name for one in found.measurements}
    assert [one.what for one in found.warnings].count("only stages in threads were measured") == 1
    # Without flags, the profile's answer is of what was measured, as that of `measure --staged` is.
    assert main(["recommend", kept, "--max-cores", "4", "--json"]) == 0
    assert {answer["option"] for answer in json.loads(capsys.readouterr().out)["options"]} == {3}
    assert main(["whatif", kept, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["option"] == 3
    assert main(["recommend", kept, "--staged"]) == 2 and "--staged" in capsys.readouterr().err
    for words in (["--worker-init", "os:getpid"], ["--dataset", f"{__file__}:Stream", "--step-time", "5ms"]):
        assert main(["measure", "--staged", *words, "-o", kept]) == 2
        assert "stages" in capsys.readouterr().err


def test_what_a_data_set_of_the_user_s_own_raises_in_a_stage_is_named() -> None:
    broken = Rig(WorkloadSpec(f"{__file__}:Broken", "", 4)).subject(threads=True)
    with (
        running(broken, workers=1, fetchers=1) as pipe,
        pytest.raises(InputError, match=r"sample \d+ raised ValueError: no"),
    ):
        pipe.next()
    ragged = Rig(WorkloadSpec(f"{__file__}:Ragged", "", 4)).subject(threads=True)
    with running(ragged, workers=1, fetchers=1) as pipe, pytest.raises(InputError, match="collating 4 samples raised"):
        pipe.next()

"""What the hooks make of the asks for batches, of kept batches, and of other loaders; in this process, by hand."""

from __future__ import annotations

import os
from operator import methodcaller
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from coresim.attaching import family
from coresim.attaching.assemble import name_of
from coresim.attaching.foreign import hook_call, parts_of
from coresim.attaching.launch import MODULE, SITE, environment
from coresim.attaching.loops import Loop, Period
from coresim.attaching.observe import settled, steady
from coresim.attaching.rank import AttachedRank
from coresim.attaching.session import Folder, SessionPlan
from coresim.attaching.trials import twin
from coresim.attaching.written import checkpoint_warning, checkpoints, named_folders
from coresim.cli.attach import split
from coresim.errors import InputError


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Batches:
    """An iterator that takes ``wait`` for a batch, as torch's have it."""

    _num_workers, _pin_memory, _persistent_workers = 1, False, False

    def __init__(self, clock: Clock, count: int, wait: float, loader: Any) -> None:
        self._clock, self._left, self._wait = clock, count, wait
        self._dataset = self._index_sampler = self._coresim_loader = loader
        self._coresim_loop: Any = None

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        self._clock.now += self._wait
        return self._left


class Broken(Batches):
    """The sixth and the seventh cannot be prepared."""

    def __next__(self) -> int:
        left = super().__next__()
        if left in (3, 2):
            raise ValueError("broken")
        return left


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rank_of(clock: Clock, folder: Path) -> AttachedRank:
    """A rank that looks after nothing but its loops."""
    rank = AttachedRank(Folder(folder), SessionPlan(parent=os.getpid(), only_watch=True), Batches.__next__, clock)
    rank.phases.check = lambda loop, *_: setattr(rank, "lead", loop if loop.trains else rank.lead)  # type: ignore[method-assign]
    return rank


def iterate(rank: AttachedRank, clock: Clock, batches: Batches, step: float, trains: bool = True) -> None:
    while True:
        try:
            rank.fetch(batches)
        except StopIteration:
            return
        clock.now += step
        rank.steps += trains


def test_a_period_is_a_wait_and_a_step_and_the_first_of_an_epoch_is_none(clock: Clock, tmp_path: Path) -> None:
    rank, loader = rank_of(clock, tmp_path), SimpleNamespace()
    for _ in range(2):
        iterate(rank, clock, Batches(clock, 5, 0.25, loader), 0.5)
    assert rank.lead is not None and rank.lead.trains
    one = [Period(0.25, 0.5, 0.0, 0.0, 1, place) for place in range(1, 5)]
    assert rank.periods() == one * 2  # of 5, the first and what follows the last are none


def test_a_batch_that_raises_is_a_part_of_the_wait_for_the_next_one(clock: Clock, tmp_path: Path) -> None:
    rank, batches = rank_of(clock, tmp_path), Broken(clock, 9, 0.25, SimpleNamespace())
    rank.inner = Broken.__next__
    for number in range(9):
        if number in (5, 6):
            with pytest.raises(ValueError, match="broken"):
                rank.fetch(batches)
        else:
            rank.fetch(batches)
            clock.now += 0.5
            rank.steps += 1
    assert [period.wait for period in rank.periods()] == [0.25, 0.25, 0.25, 0.25, 0.75]
    assert rank.errors == 2


def test_starts_of_epochs_are_noted_but_for_the_programs_first(clock: Clock, tmp_path: Path) -> None:
    rank, loader = rank_of(clock, tmp_path), SimpleNamespace()
    for wait in (8.0, 0.25):
        iterate(rank, clock, Batches(clock, 5, wait, loader), 0.5)
    assert rank.lead is not None
    assert (rank.lead.starts, rank.lead.epoch) == ([0.25], 5)
    made = Batches(clock, 5, 2.0, loader)
    made._coresim_made_s = 0.5  # its workers were started meanwhile
    rank.fetch(made)
    rank.fetch(Batches(clock, 5, 1.0, loader))  # only looked into
    assert (rank.lead.starts, rank.lead.epoch) == ([0.25, 2.5, 1.0], 5)
    rank.clear()
    assert (rank.lead.starts, rank.lead.epoch, rank.periods()) == ([0.25, 2.5, 1.0], 5, [])
    rank.lead.forget_epochs()
    iterate(rank, clock, Batches(clock, 3, 1.0, loader), 0.5)
    assert (rank.lead.starts, rank.lead.epoch) == ([], 3)


def test_a_loader_that_is_made_anew_for_each_epoch_keeps_its_starts() -> None:
    first, second = Loop((1, 1)), Loop((2, 2))
    first.starts, first.epoch, second.starts = [0.25], 4, [0.5]
    second.take_over(first)
    assert (second.starts, second.epoch) == ([0.25, 0.5], 4)


def test_an_evaluation_in_the_middle_of_an_epoch_is_no_part_of_a_step(clock: Clock, tmp_path: Path) -> None:
    rank, loader, other = rank_of(clock, tmp_path), SimpleNamespace(), SimpleNamespace()
    batches = Batches(clock, 9, 0.25, loader)
    for number in range(9):
        rank.fetch(batches)
        clock.now += 0.5
        rank.steps += 1
        if number == 5:
            iterate(rank, clock, Batches(clock, 3, 1.0, other), 2.0, trains=False)
    assert rank.lead is not None and rank.lead.key == (id(loader), id(loader))
    # The ninth is open, the first is the epoch's, and the sixth holds the evaluation.
    assert rank.periods() == [Period(0.25, 0.5, 0.0, 0.0, 1, place) for place in (1, 2, 3, 4, 1, 2)]


def test_a_loop_around_another_one_does_not_take_over_when_that_ends(clock: Clock, tmp_path: Path) -> None:
    """An outer loader gives tasks, each with a loop of its own, whose loader is made anew."""
    rank = rank_of(clock, tmp_path)
    outer = Batches(clock, 3, 0.0, SimpleNamespace())
    loops = []
    for _ in range(3):
        rank.fetch(outer)
        clock.now += 0.01
        inner = Batches(clock, 4, 0.1, SimpleNamespace())
        iterate(rank, clock, inner, 0.2)
        loops.append(inner._coresim_loop)
    assert all(loop.trains for loop in (*loops, outer._coresim_loop))
    assert all(outer._coresim_loop.is_around(loop) for loop in loops[2:])
    assert not any(loop.is_around(outer._coresim_loop) for loop in loops)
    assert not loops[2].is_around(loops[0]) and not loops[0].is_around(loops[0])


def test_a_loop_without_steps_never_leads(clock: Clock, tmp_path: Path) -> None:
    rank = rank_of(clock, tmp_path)
    iterate(rank, clock, Batches(clock, 50, 0.1, SimpleNamespace()), 0.1, trains=False)
    assert rank.lead is None and rank.batches == 51


def test_accumulated_gradients_are_fewer_steps_than_batches(clock: Clock, tmp_path: Path) -> None:
    rank = rank_of(clock, tmp_path)
    batches = Batches(clock, 12, 0.1, SimpleNamespace())
    for number in range(12):
        rank.fetch(batches)
        rank.steps += number % 4 == 3
    assert rank.lead is not None
    assert [period.steps for period in rank.periods()].count(1) == 2


def test_steady_compares_whole_turns_of_all_workers() -> None:
    flat = [Period(0.1, 0.2, 0, 0, 1, 1)] * 40
    falling = [Period(1.0 / (number + 1), 0.2, 0, 0, 1, number) for number in range(20)]
    bursts = [Period(0.3 if number % 4 == 0 else 0.0, 0.2, 0, 0, 1, number) for number in range(64)]
    assert steady(flat, 2) and not steady(flat[:15], 2)
    assert not steady(falling, 1)
    assert steady(bursts, 4)


def test_what_is_observed_is_whole_turns_behind_what_was_out_when_the_loop_paused() -> None:
    def wait(place: int) -> float:
        """Four workers give four batches at once, then none for a while; what was out during a pause is there."""
        return 0.0 if place <= 8 or place % 4 else 0.4

    before = [Period(wait(place), 0.2, 0, 0, 1, place) for place in range(40, 51)]
    # What four workers are ahead is used up when the loop waits again: with the twelfth batch.
    after = [Period(wait(place), 0.2, 0, 0, 1, place) for place in range(1, 24)]
    for seen, whole in ((before, 8), (after, 8), (before + after, 16)):
        chosen = settled(seen, 4, 2)
        assert len(chosen) == whole
        assert sum(period.wait for period in chosen) / whole == pytest.approx(0.1)
    assert settled(after, 0, 2) == after  # without workers nothing is out
    assert settled(after[:8], 4, 2) == after[:8]  # a loop that pauses so often is as it is
    assert settled(before[:3], 4, 2) == before[:3]
    never = [period._replace(wait=0.0) for period in after]
    assert settled(never, 4, 2) == never[8:20]  # one that never waits is as it is


def test_a_twin_has_all_of_a_loader_but_its_iterator() -> None:
    class Loader:
        def __init__(self) -> None:
            self.dataset, self._iterator, self.num_workers = [1, 2], "running", 3

        def __setattr__(self, name: str, value: Any) -> None:
            assert not hasattr(self, "num_workers"), "torch's own refuses changes"
            super().__setattr__(name, value)

    loader = Loader()
    copy = twin(loader, num_workers=1)
    assert (type(copy), vars(copy)) == (Loader, {"dataset": [1, 2], "_iterator": None, "num_workers": 1})
    assert vars(loader) == {"dataset": [1, 2], "_iterator": "running", "num_workers": 3}


def test_a_named_call_and_a_named_generator_give_their_own_batches(clock: Clock, tmp_path: Path) -> None:
    module = ModuleType("theirs")

    class Feeder:
        def batch(self, number: int) -> int:
            clock.now += 0.25
            return number

        def stream(self) -> Any:
            yield from range(4)

    module.Feeder = Feeder  # type: ignore[attr-defined]
    for name in ("Feeder.batch", "Feeder.stream"):
        rank = rank_of(clock, tmp_path)
        rank.inner = methodcaller("call")
        hook_call(module, name, rank)
        found = list(Feeder().stream()) if "stream" in name else [Feeder().batch(number) for number in range(4)]
        assert found == [0, 1, 2, 3]
        assert rank.batches == 4 + ("stream" in name)


@pytest.mark.parametrize("name", ["feeder", "feeder:", ":batch"])
def test_a_hook_of_another_form_is_one_line(name: str) -> None:
    with pytest.raises(InputError, match=r"write pkg\.mod:Class\.method, the call that gives a batch"):
        parts_of(name)


def test_new_checkpoints_are_found_and_old_ones_and_other_files_are_not(tmp_path: Path) -> None:
    old, new, log = tmp_path / "old.pt", tmp_path / "runs" / "new.ckpt", tmp_path / "log.txt"
    new.parent.mkdir()
    for path in (old, new, log):
        path.write_text("x")
    os.utime(old, (10.0, 10.0))
    assert checkpoints([str(tmp_path), str(tmp_path)], since=1000.0) == [str(new)]
    assert checkpoint_warning([]) == []
    told = checkpoint_warning([f"{number}.pt" for number in range(5)])
    assert told[0].value == "0.pt, 1.pt, 2.pt and 2 more"
    assert "do not go on from it" in told[0].remedy


def test_folders_that_a_command_names(tmp_path: Path) -> None:
    assert named_folders(["python", "train.py", f"--out={tmp_path}", "-n", "3"]) == [str(tmp_path)]


def test_the_command_stands_behind_the_first_two_dashes() -> None:
    assert split(["recommend", "--json", "--", "python", "t.py", "--", "-x"]) == (
        ["recommend", "--json"],
        ["python", "t.py", "--", "-x"],
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 1", "train.py"),
        ("python -m pkg.train --lr 1", "pkg.train"),
        ("python -m torch.distributed.run --nproc-per-node=8 dir/train.py", "train.py"),
        ("bash run.sh", "run.sh"),
        ("python -c main()", "python -c"),
        ("/usr/bin/python - --lr 1", "python -"),
        ("my-trainer", "my-trainer"),
    ],
)
def test_a_job_is_called_by_its_script_or_module(command: str, name: str) -> None:
    assert name_of(command.split()) == name


def test_the_environment_of_a_program_keeps_its_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    monkeypatch.setenv("HOME", "/home")
    folder = Folder(tmp_path)
    folder.write_plan(SessionPlan(parent=1, hook="feeder:Feeder.batch"))
    found = environment(folder)
    assert found["PYTHONPATH"].split(os.pathsep) == [str(SITE), "/theirs"]
    assert (found["HOME"], found[MODULE]) == ("/home", "feeder")


def test_processes_are_found_by_their_mark_and_by_their_parents(tmp_path: Path) -> None:
    def process(pid: int, parent: int, state: str = "S", environ: str = "") -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a b) {state} {parent} 0")
        (tmp_path / str(pid) / "environ").write_text(environ)

    process(10, 1)  # the command
    process(11, 10)  # what it started
    process(12, 1, environ="A=1\0MARK=x\0")  # a rank whose launcher is gone
    process(13, 12)
    process(14, 10, state="Z")
    process(15, 1, environ="MARK=xy\0")  # another session's
    assert family.members(10, "MARK=x", tmp_path) == {10, 11, 12, 13}


def test_a_program_without_our_hooks_in_it_is_read_without_torch() -> None:
    """What runs in every Python of the user's program imports next to nothing."""
    source = (SITE / "sitecustomize.py").read_text()
    at_once = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert at_once == ["import os", "import sys"]

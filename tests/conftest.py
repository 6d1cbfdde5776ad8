"""What every test has: a state folder of its own, so that the user's ledgers are left alone; a folder for temporary
files that is gone at the end. And fixtures that tests of several rooms use, such as a made-up profile.

Where tests run in several processes, each file runs in one of them, as files share what is slow to make; the files that
take longest are begun first, so that all processes end at about the same time.
"""

from __future__ import annotations

import gc
import signal
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

import psutil
import pytest
from faulty import give_files
from made_up import profile

# A shell in the background ignores interrupts, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "test_coverage.py",
    "test_faults.py",
    "test_registry.py",
    "test_ledgers.py",
    "test_plan.py",
    "test_engines.py",
    "test_recommend.py",
    "test_agreement.py",
    "test_one_interval.py",
    "test_fuzz.py",
    "test_campaign.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_collection_finish() -> None:
    """What was imported stays to the end, so the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("LANGUAGE", "C")  # else argparse looks for its texts in other languages with every parser
        yield


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that are killed leave files of multiprocessing; of ours nothing may be left by then."""
    tmp_path_factory.getbasetemp()  # pytest's own stay for a while, to be looked at
    get_temp_dir()  # of multiprocessing in this process, which removes it itself at its end
    with tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", folder)
            patch.setattr(tempfile, "tempdir", None)
            yield
        left = [path.name for path in Path(folder).glob("coresim-*")]
    assert not left, f"temporary folders that nobody removed: {left}"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for the temporary files of a program, with a path so short that sockets can be opened there."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def profile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up profile's file."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    profile().save(path)
    return path


@pytest.fixture(scope="module")
def few_places() -> Iterator[None]:
    """The surface that a page's sliders read, with the places about its middle alone, where the answer's numbers stand.

    All of it takes longer than the answer; `report/test_interactive.py` tries it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coresim.advise.surface.FACTORS", (0.5, 1.0, 2.0))
        yield


@pytest.fixture
def no_child_is_left() -> Iterator[None]:
    """No process that the test started runs on."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a scenario, a simple job and a fleet in it."""
    give_files(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def quick_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs whose samples and steps take what is known, and little."""
    from attach_kit import ENVIRON

    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short samples; and the modules of the scripts that give data sets are imported anew."""
    monkeypatch.setenv("SAMPLE_S", "0.0001")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("named-train", "just-train", "my-train", "work"):
        monkeypatch.delitem(sys.modules, name, raising=False)

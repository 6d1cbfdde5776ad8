"""What several verbs share: reading a scenario or profile, checking what is to be written, the study, progress."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from coresim import __version__
from coresim.errors import EXIT_ANSWERED, CoresimError, InputError
from coresim.measure.host import read_host
from coresim.model.keys import choice
from coresim.model.load import load_input
from coresim.model.presets import PRESETS
from coresim.model.profile import Profile
from coresim.model.scenario import Scenario
from coresim.model.storage import tiers
from coresim.units import visible

if TYPE_CHECKING:
    from coresim.advise.sweep import Study
    from coresim.sim.estimate import Engine, Plan
    from coresim.validate.ledger import Ledger

T = TypeVar("T")
#: What a figure's name may end with.
FIGURES = (".png", ".svg", ".pdf")


def settings_of(args: argparse.Namespace) -> list[str]:
    """The overrides that the flags ask for; a preset that is not known is refused before anything is measured."""
    preset, target, gpus = (getattr(args, name, None) for name in ("preset", "idle_target", "gpus"))
    if preset is not None:
        choice(*PRESETS).read(preset, "--preset")
    found = [] if preset is None else [f"loader.preset={json.dumps(preset)}"]
    found += args.settings
    found += [] if target is None else [f"target.gpu_idle={target!r}"]
    return found if gpus is None else [*found, f"accelerator.count={gpus}"]


def show(args: argparse.Namespace, document: object, text: str) -> int:
    """Print one JSON object where ``--json`` asks for it, else the text; the exit code of an answer.

    Raise CoresimError after the answer if a file could not be written (`save`).
    """
    print(json.dumps(document, indent=1, allow_nan=False) if args.json else visible(text))
    told_unsaved(args)
    return EXIT_ANSWERED


def save(args: argparse.Namespace, measured: Profile | Ledger, path: str) -> bool:
    """Save what was measured. If that fails, the answer comes first, so that no minutes of measuring are lost."""
    try:
        measured.save(path)
    except CoresimError as error:
        args.unsaved = error
        return False
    return True


def told_unsaved(args: argparse.Namespace) -> None:
    """Raise, after the answer, what went wrong when a file was to be written."""
    error: CoresimError | None = getattr(args, "unsaved", None)
    if error is not None:
        sys.stdout.flush()
        raise error


def read_input(
    path: str, settings: list[str], cold: bool = False, storage: str | None = None, step_needed: bool = True
) -> tuple[Scenario, Profile | None]:
    """A scenario from a scenario file or a saved profile, with overrides; and the profile, if it is one.

    ``cold``: samples come from storage and not from the page cache; only a profile tells what that costs.
    ``storage``: they come from this recorded tier, whatever the input says.
    ``step_needed``: a profile whose step time nobody knows is refused.
    """
    hint = (
        f"coresim recommend -- python {path} runs it, and recommend --dataset {path}:NAME takes NAME in it,"
        " a data set or what returns one"
    )
    require(not path.endswith(".py"), f"{path}: Python code, and a scenario or a profile is needed; {hint}")
    check_storage(storage, cold)
    scenario, profile = load_input(path, settings, step_needed, cold or None, storage)
    require(profile is not None or not cold, f"--cold: {path} is a scenario; give workload.fetch instead")
    if profile:
        _note(profile, path)
    return scenario, profile


def check_storage(storage: str | None, cold: bool) -> None:
    """InputError for a tier that is not known, or beside ``--cold``."""
    if storage is None:
        return
    choice(*tiers()).read(storage, "--storage")
    require(not cold, "--cold and --storage: each says where samples come from; leave one out")


def _note(profile: Profile, path: str) -> None:
    """Say on stderr what is odd about using a profile so."""
    here = read_host(load_window=0.0).fingerprint
    if profile.host.fingerprint != here:
        print(
            visible(
                f"coresim: {path}: measured on another machine ({profile.host.cpu_model}); the answer is for that one;"
                " for this one, measure here"
            ),
            file=sys.stderr,
        )


def engine_named(name: str) -> Engine:
    """The simulation engine; says so where the fast one is not compiled."""
    from coresim.sim import engines

    return engines.engine_named(name, lambda slow: print(f"coresim: {slow}", file=sys.stderr))


@contextmanager
def study_of(plan: Plan, engine: str, progress: Any = None) -> Iterator[Study]:
    """A study on all cores of this process: the compiled engine runs without the interpreter's lock."""
    from concurrent.futures import ThreadPoolExecutor

    from coresim.advise.sweep import Study

    threads = len(os.sched_getaffinity(0)) if engine == "fast" else 1
    run = engine_named(engine)
    with ThreadPoolExecutor(threads) as executor:
        try:
            yield Study(run, plan, executor if threads > 1 else None, progress)
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def heeding(work: Callable[[], T]) -> T:
    """Do the work in a thread and return its result: compiled code ignores signals; no interrupt waits for it."""
    from concurrent.futures import Future

    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result()


def command_line() -> str:
    """This process's command, as a shell takes it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def metadata(
    seed: int | None, source: str, provenance: str | None = None, profile: Profile | None = None
) -> dict[str, Any]:
    """Provenance of an answer."""
    return {
        "tool": "coresim",
        "tool_version": __version__,
        "command": " ".join(["coresim", *sys.argv[1:]]),
        "seed": seed,
        "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "source": source,
        "step_provenance": provenance,
        "host_fingerprint": profile.host.fingerprint if profile else None,
    }


def require(condition: bool, message: str) -> None:
    """Raise InputError with the message unless the condition holds."""
    if not condition:
        raise InputError(message)


def check_writable(path: str) -> None:
    """Raise InputError if ``path`` cannot be written: before minutes of measuring, not after."""
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InputError(f"cannot write {target}: it is a {'folder' if target.is_dir() else 'device'}; name a file")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {target}: no folder {target.parent}; make it first")
    try:  # no mode of the folder tells of a disk that is full or read-only
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; choose a folder that you can write to") from None


def check_figure(path: str) -> None:
    """Raise InputError if no figure can be written to ``path``: an unknown format, or as `check_writable`."""
    if Path(path).suffix not in FIGURES:
        raise InputError(f"{path}: a figure is written as {', '.join(FIGURES)}; end its name with one of them")
    check_writable(path)


@contextmanager
def progress_on_stderr() -> Iterator[Callable[[str, float], None]]:
    """A listener for `run_campaign`: a bar on a terminal, else one line per part."""
    if not sys.stderr.isatty():
        yield _one_line_per_part()
        return
    from tqdm import tqdm

    form = "{desc:<36} {percentage:3.0f}% |{bar}| {elapsed}"
    with tqdm(total=1.0, bar_format=form, file=sys.stderr, leave=False) as bar:

        def listen(what: str, fraction: float) -> None:
            bar.set_description_str(visible(what), refresh=False)
            # A second phase, such as what a plan asks for, begins at nothing again.
            bar.n = fraction
            bar.refresh()

        yield listen


def _one_line_per_part() -> Callable[[str, float], None]:
    told: set[str] = set()  # a part that waits for a batch now and then goes on under its name

    def listen(what: str, fraction: float) -> None:
        part = what.partition(",")[0]  # what follows a comma counts on
        if part not in told and fraction < 1.0:
            print(visible(f"{part} ..."), file=sys.stderr, flush=True)
            told.add(part)

    return listen

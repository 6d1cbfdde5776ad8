"""What several verbs share: reading a scenario or profile, the study, progress on stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coresim.errors import EXIT_ANSWERED, InputError
from coresim.model.keys import MOST
from coresim.model.option import Option
from coresim.units import LARGEST, in_bounds, short

if TYPE_CHECKING:
    from coresim.advise.sweep import Study
    from coresim.model.profile import Profile
    from coresim.model.scenario import Scenario
    from coresim.sim.estimate import Engine, Plan


def add_set(parser: argparse.ArgumentParser) -> None:
    """The ``--set`` flag."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="override a key of the scenario or profile, such as 'accelerator.step=98 ms'; repeatable",
    )  # fmt: skip


def add_preset(parser: argparse.ArgumentParser) -> None:
    """The ``--preset`` flag."""
    parser.add_argument(
        "--preset", metavar="NAME",
        help="the framework's input pipeline, such as tf.data; the same as --set loader.preset=NAME (coresim presets)",
    )  # fmt: skip


def settings_of(args: argparse.Namespace) -> list[str]:
    """The overrides of ``--preset`` and ``--set``; a name that is not known is refused before anything is measured."""
    if args.preset is not None:
        from coresim.model.keys import choice
        from coresim.model.presets import PRESETS

        choice(*PRESETS).read(args.preset, "--preset")
    preset = [] if args.preset is None else [f"loader.preset={json.dumps(args.preset)}"]
    return [*preset, *args.settings]


def add_option(parser: argparse.ArgumentParser, default: Option | None, text: str) -> None:
    """The ``--option`` flag; ``text`` says what is taken without it."""
    numbers = ",".join(map(str, Option))
    parser.add_argument(
        "--option", type=option_number, metavar=f"{{{numbers}}}", default=default, help=f"organisation {text}"
    )


def option_number(text: str) -> Option:
    """An argparse type: the number of an option."""
    try:
        return Option(int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{short(text)} is not an option; write {', '.join(map(str, Option))}"
        ) from None


def add_json(parser: argparse.ArgumentParser) -> None:
    """The ``--json`` flag."""
    parser.add_argument("--json", action="store_true", help="print one JSON object alone on stdout")


def show(args: argparse.Namespace, document: object, text: str) -> int:
    """Print one JSON object where ``--json`` asks for it, else the text; the exit code of an answer."""
    print(json.dumps(document, indent=1, allow_nan=False) if args.json else text)
    return EXIT_ANSWERED


def add_storage(parser: argparse.ArgumentParser) -> None:
    """The ``--storage`` flag."""
    parser.add_argument(
        "--storage", metavar="NAME",
        help="samples come from this recorded tier, such as hdd-7200 or s3 (coresim storage); needs the bytes of a"
        " sample, which a profile knows",
    )  # fmt: skip


def read_input(
    path: str, settings: list[str], cold: bool = False, storage: str | None = None, step_needed: bool = True
) -> tuple[Scenario, Profile | None]:
    """A scenario from a scenario file or a saved profile, with overrides; and the profile, if it is one.

    ``cold``: samples come from storage and not from the page cache; only a profile tells what that costs.
    ``storage``: they come from this recorded tier, whatever the input says.
    ``step_needed``: a profile whose step time nobody knows is refused.
    """
    from coresim.model.load import scenario_of
    from coresim.model.profile import Profile, check_step, load_document

    hint = (
        f"coresim recommend -- python {path} runs it, and recommend --dataset {path}:NAME takes the data set that NAME"
        " in it is or makes"
    )
    require(not path.endswith(".py"), f"{path}: Python code, and a scenario or a profile is needed; {hint}")
    document = load_document(path)
    profile = document if isinstance(document, Profile) else None
    if profile:
        _note(profile, path)
        if step_needed:
            check_step(profile, path, settings)
    require(profile is not None or not cold, f"--cold: {path} is a scenario; give workload.fetch instead")
    check_storage(storage, cold)
    return scenario_of(document, path, settings, cold or None, storage), profile


def check_storage(storage: str | None, cold: bool) -> None:
    """InputError for a tier that is not known, or beside ``--cold``."""
    if storage is None:
        return
    from coresim.model.keys import choice
    from coresim.model.storage import tiers

    choice(*tiers()).read(storage, "--storage")
    require(not cold, "--cold and --storage: each says where samples come from; leave one out")


def _note(profile: Profile, path: str) -> None:
    """Say on stderr what is odd about using a profile so."""
    from coresim.measure.host import read_host

    here = read_host(load_window=0.0).fingerprint
    if profile.host.fingerprint != here:
        print(
            f"coresim: {path}: measured on another machine ({profile.host.cpu_model}); the answer is for that one;"
            " for this one, measure here",
            file=sys.stderr,
        )


def engine_named(name: str) -> Engine:
    """The simulation engine; says so where the fast one is not compiled."""
    from coresim.sim import engines

    engine = engines.engine_named(name)
    if name == "fast":
        from coresim.sim.fast import SLOW

        if SLOW:
            print(f"coresim: {SLOW}", file=sys.stderr)
    return engine


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


def metadata(seed: int | None, source: str, basis: str | None, fingerprint: str | None) -> dict[str, Any]:
    """Provenance of an answer."""
    from coresim import __version__

    return {
        "tool": "coresim",
        "tool_version": __version__,
        "command": " ".join(["coresim", *sys.argv[1:]]),
        "seed": seed,
        "time_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "source": source,
        "step_basis": basis,
        "host_fingerprint": fingerprint,
    }


def whole_number(least: int, most: int = MOST) -> Callable[[str], int]:
    """An argparse type: a whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{short(text)} is not a whole number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{short(value)} is not from {least} to {most:g}")
        return value

    return read


def share(text: str) -> float:
    """An argparse type: a share such as 0.05 or 5%."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a share; write 0.05 or 5%") from None
    if not (0 <= value <= 1 and in_bounds(value)):
        raise argparse.ArgumentTypeError(f"{short(text)} is not between 0 and 1; write 0.05 or 5%")
    return value


def positive(what: str) -> Callable[[str], float]:
    """An argparse type: a positive number, perhaps fractional; ``what`` names it in errors."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{short(text)} is not {what}") from None
        if not (value > 0 and in_bounds(value)):
            raise argparse.ArgumentTypeError(f"{short(text)} is not {what} above 0 and at most {LARGEST:g}")
        return value

    return read


def require(condition: bool, message: str) -> None:
    """Raise bad input with the message unless the condition holds."""
    if not condition:
        raise InputError(message)

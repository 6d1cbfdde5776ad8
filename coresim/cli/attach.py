"""``-- COMMAND`` after a verb: run the user's program, and make a profile from what its ranks report."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coresim.attaching.written import checkpoint_warning, checkpoints, named_folders
from coresim.cli.common import (
    check_storage,
    check_writable,
    command_line,
    progress_on_stderr,
    read_input,
    require,
    save,
    show,
    study_of,
)
from coresim.cli.request import request_from
from coresim.errors import EXIT_ANSWERED, EXIT_NOT_TRUSTED, InputError
from coresim.files import utc_now
from coresim.machines.catalogue import DEFAULT_GPU, DEFAULT_MODEL, StepChoice, find_step
from coresim.model.load import check_overrides, scenario_of
from coresim.model.profile import Profile
from coresim.model.scenario import Scenario
from coresim.units import LONG, parse_duration

#: Verbs that take a command.
VERBS = ("recommend", "measure", "validate", "whatif", "report", "watch")
#: Flags for what the program itself decides, or for another way to measure.
_PROGRAMS = (
    "input", "workload", "dataset", "batch_size", "collate", "worker_init", "step", "device", "cpu_step", "staged",
    "build_timeout", "grid", "figure", "time", "trial_time", "cold",
)  # fmt: skip
#: Flags of another step than the program's own, which `coresim recommend` takes.
_STEPS = ("step_time", "gpu", "model", "precision")
#: The default output of ``validate``, which is not where a program's profile goes.
DEFAULT_LEDGER = "ledger.json"
_QUICK: dict[str, Any] = {"watch_s": 2.0, "kept_s": 2.0, "budget_s": 10.0}


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first ``--``, and the command after it."""
    words = list(argv)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def add_attach(parser: argparse.ArgumentParser, save: bool = False, hook: bool = False) -> None:
    """The flags that go with ``-- COMMAND``; ``save``: the profile's file too; ``hook``: another loader's call too."""
    job = parser.add_argument_group(
        "your program (after all flags: -- python train.py --its flags)",
        "It is run as it is, measured from inside, and stopped; a few hundred batches are trained on repeated data,"
        " and files that it writes are not removed.",
    )
    job.add_argument("--patience", metavar="TIME", help="how long it may take until it trains (default: 2 min)")
    if hook:
        job.add_argument(
            "--loader-hook", metavar="MODULE:CLASS.METHOD",
            help="a loader that is not torch's: the call that returns a batch; coresim times how long the loop waits",
        )  # fmt: skip
    if save:
        job.add_argument("--save", metavar="FILE", help="keep its profile, for any verb on any machine")
    parser.set_defaults(command=[])


def check_program(args: argparse.Namespace) -> None:
    """Before the program starts, raise InputError for a flag that the program decides, or an unknown step."""
    other_step = getattr(args, "other_step", False)
    for name in (*_PROGRAMS, *(() if other_step else _STEPS)):
        if getattr(args, name, None) not in (None, False, "cuda"):  # validate's own default of --device
            flag = getattr(args, name) if name == "input" else f"--{name.replace('_', '-')}"
            raise InputError(f"{flag}: the program after -- says what is measured; leave one of the two out")
    if other_step:
        recorded_step(args)
        if args.step_time:
            parse_duration(args.step_time, "--step-time")


def measured(args: argparse.Namespace) -> Profile:
    """The profile of the program after ``--``, or of what the flags name; a name that trains is run as a program."""
    from coresim.measure.campaign import run_campaign
    from coresim.workloads.named import TrainsError

    if args.command:
        return attached(args)[0]
    request = request_from(args)
    try:
        with progress_on_stderr() as progress:
            return run_campaign(request, progress=progress, command=command_line())
    except TrainsError:
        name = args.dataset
        print(f"coresim: {name} iterates a DataLoader, so it trains: it is run as a program", file=sys.stderr)
    args.command, args.dataset = [sys.executable, "-m", "coresim.cli.called", name], None
    return replace(attached(args)[0], workload=name)


def attached(args: argparse.Namespace, trials: tuple[int, ...] = ()) -> tuple[Profile, list[dict[str, Any]]]:
    """Run the program of ``args.command``; the profile of its job, and what each of its ranks told."""
    from coresim.attaching.assemble import profile_of

    began, since = utc_now(), time.time()
    found = _run(args, trials)
    folders = [*(told["settings"]["folder"] for told in found), *named_folders(args.command)]
    written = checkpoint_warning(checkpoints(folders, since))
    return profile_of(found, args.command, command_line(), began, written), found


def _run(args: argparse.Namespace, trials: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    from coresim.attaching.conduct import PATIENCE_S, AttachRequest, attach
    from coresim.attaching.foreign import parts_of
    from coresim.attaching.launch import spoken

    check_program(args)
    patience = parse_duration(args.patience, "--patience", LONG) if args.patience else PATIENCE_S
    require(patience > 0, "--patience: must be more than 0")
    hook = getattr(args, "loader_hook", None)
    if hook is not None:
        parts_of(hook)
    times = dict(_QUICK) if getattr(args, "quick", False) else {}
    if getattr(args, "budget", None):
        times["budget_s"] = parse_duration(args.budget, "--budget", LONG)
        require(times["budget_s"] > 0, "--budget: must be more than 0")
    request = AttachRequest(tuple(args.command), patience_s=patience, trials=trials, hook=hook, **times)
    print(
        f"coresim: runs {spoken(args.command)} and stops it when all is measured; a few hundred batches are trained"
        " on repeated data, and files that it writes are not removed",
        file=sys.stderr,
    )
    with progress_on_stderr() as progress:
        return attach(request, _forward, progress)


def read_job(
    args: argparse.Namespace, settings: list[str], cold: bool = False, storage: str | None = None
) -> tuple[Scenario, Profile | None]:
    """The scenario of ``args.input``, or of the program of ``args.command``; and the profile, if there is one."""
    if not args.command:
        require(args.input is not None, "no input: give a scenario (.toml), a profile (.json), or -- and your program")
        return read_input(args.input, settings, cold, storage)
    profile = measured_and_saved(args, settings, storage, cold)
    return scenario_of(profile, source_of(args), settings, storage=storage), profile


def measured_and_saved(
    args: argparse.Namespace, settings: list[str], storage: str | None, cold: bool = False
) -> Profile:
    """The profile of `measured`, kept where ``--save`` asks; errors are reported before measuring."""
    check_overrides(settings, storage)
    check_storage(storage, cold)
    if args.save:
        check_writable(args.save)
    profile = measured(args)
    if args.save:
        save(args, profile, args.save)
    return profile


def source_of(args: argparse.Namespace) -> str:
    """The name that an answer has for its input."""
    return shlex.join(args.command) if args.command else args.input or "measured here"


def another_step(args: argparse.Namespace, profile: Profile) -> tuple[Profile, list[str]]:
    """The profile with the step of ``--gpu`` for the program's own; and overrides: ``--step-time``, its device's."""
    from coresim.machines.catalogue import recorded_source

    if args.step_time:
        return profile, [f"accelerator.step={parse_duration(args.step_time, '--step-time')!r} s", *_DEVICE]
    found = recorded_step(args, profile.batch_size)
    return (profile, []) if found is None else (replace(profile, accelerator=recorded_source(found)), list(_DEVICE))


def recorded_step(args: argparse.Namespace, batch_size: int | None = None) -> StepChoice | None:
    """The record that these flags name, if any; InputError for a name that is none, or beside ``--step-time``."""
    if not (args.gpu or args.model or args.precision):
        return None
    require(not args.step_time, "--step-time: gives the step's time, as --gpu does; leave one of the two out")
    return find_step(args.gpu or DEFAULT_GPU, args.model or DEFAULT_MODEL, batch_size, args.precision)


#: A device of its own does not hold the loop up, and the trainer waits for it as torch does unless told
#: otherwise; batches are copied to it.
_DEVICE = ("accelerator.run_ahead=1", "accelerator.sync=spin", "accelerator.copies=true")


def _forward(part: bytes) -> None:
    """The program's output is ours to show, and not to mix with the answer."""
    sys.stderr.buffer.write(part)
    sys.stderr.buffer.flush()


def foreign_loader(args: argparse.Namespace) -> int:
    """The answer for a program whose loader is not torch's."""
    from coresim.attaching.assemble import foreign_of
    from coresim.report.plain import section_text
    from coresim.report.today import foreign_section

    require(args.save is None, "--save: the loader of --loader-hook cannot be run apart, so there is no profile")
    told = foreign_of(_run(args))
    return show(args, told, section_text(foreign_section(told, args.loader_hook)))


def validate_program(args: argparse.Namespace) -> int:
    """Run the program's loop with other numbers of workers too, and print predicted beside observed."""
    from coresim.attaching.assemble import failures_of, trials_of
    from coresim.attaching.today import check, check_today
    from coresim.report.plain import answer_lines
    from coresim.report.today import today_section, trials_document, trials_section
    from coresim.sim.estimate import Plan

    keep = args.output != DEFAULT_LEDGER
    if keep:
        check_writable(args.output)
    profile, found = attached(args, _worker_counts())
    if keep:
        save(args, profile, args.output)
    assert profile.today is not None
    scenario = scenario_of(profile, source_of(args))
    with progress_on_stderr() as progress, study_of(Plan(), "fast", progress) as study:
        today = check_today(profile, study)
        assert today is not None
        tried = [check(scenario, seen, study) for seen in trials_of(found, args.command, profile.today.threads)]
    failures = failures_of(found)
    document = trials_document(today, tried, failures, args.max_error)
    show(args, document, answer_lines("", today_section(today), trials_section(today, tried, failures)))
    return EXIT_ANSWERED if document["trusted"] else EXIT_NOT_TRUSTED


def _worker_counts() -> tuple[int, ...]:
    """None, one, and around the cores that are here."""
    cores = max(1, len(os.sched_getaffinity(0)))
    return tuple(sorted({0, 1, max(1, cores // 2), cores, cores + 1, 2 * cores}))

"""``coresim recommend``: how many CPU cores one GPU needs, with the evidence."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coresim.cli.attach import (
    add_attach,
    another_step,
    check_program,
    foreign_loader,
    measured_and_saved,
    source_of,
)
from coresim.cli.common import metadata, progress_on_stderr, read_input, require, settings_of, show, study_of
from coresim.cli.flags import add_flags, whole_number
from coresim.cli.latest import latest
from coresim.cli.request import add_arguments
from coresim.errors import EXIT_ANSWERED, EXIT_NO_CORE_COUNT, EXIT_NOT_TRUSTED
from coresim.model.keys import MOST_PARTS
from coresim.model.load import scenario_of
from coresim.model.profile import Profile, step_is_unknown
from coresim.model.scenario import Scenario

if TYPE_CHECKING:
    from coresim.attaching.today import Checked

#: Flags that say how to measure; they mean nothing beside a file.
_MEASURING = (
    "save", "workload", "dataset", "batch_size", "collate", "worker_init", "step", "step_time", "gpu", "model",
    "precision", "device", "cpu_step", "staged", "quick", "budget",
)  # fmt: skip
#: What says the same of a file that is given.
_RECORDED = "--set 'accelerator.step=98 ms' with your step (coresim catalogue lists recorded ones)"
_INSTEAD = {
    "batch_size": "--set workload.batch_size=128", "step_time": "--set 'accelerator.step=98 ms'", "gpu": _RECORDED,
    "model": _RECORDED, "precision": _RECORDED,
}  # fmt: skip
_NOT_VALIDATED = "not validated here: coresim validate runs the real loader beside this"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "recommend",
        help="how many CPU cores one GPU needs (measures here unless a file is given)",
        description="Recommend CPU cores per GPU and loader settings. Without a file it measures this machine first.",
    )
    parser.add_argument(
        "input", nargs="?",
        help="a scenario (.toml) or a saved profile (.json); absent: measure here, or -- and your program",
    )  # fmt: skip
    add_flags(parser, "idle-target", "confidence", "options")
    parser.add_argument(
        "--gpus", type=whole_number(1, MOST_PARTS), metavar="N",
        help="GPUs of the node, one rank each, that share its cores and wait for one another: the answer is for all",
    )  # fmt: skip
    add_flags(parser, "max-cores", "seed", "engine", "cold")
    parser.add_argument("-o", "--save", metavar="FILE", help="also save the measured profile")
    parser.add_argument("--verbose", action="store_true", help="also the options, the curve and the evidence")
    add_arguments(parser)
    add_attach(parser, hook=True)
    add_flags(parser, "preset", "storage", "set", "json")
    parser.set_defaults(run=run, other_step=True)


def run(args: argparse.Namespace) -> int:
    """Measure or read, simulate, print; 0 if a core count meets the target, 4 if none does."""
    from coresim.advise.recommend import recommend
    from coresim.advise.steps import for_steps
    from coresim.attaching.today import check_today, own_options
    from coresim.sim.estimate import Plan

    require(not args.loader_hook or args.command, "--loader-hook: goes with a program; add -- python train.py")
    if args.loader_hook:
        return foreign_loader(args)
    scenario, profile, told = _scenario(args)
    asked = args.options or own_options(profile), args.max_cores, args.confidence
    with progress_on_stderr() as progress, study_of(Plan(seed=args.seed), args.engine, progress) as study:
        if told and step_is_unknown(told, args.settings):
            _print_steps(args, for_steps(scenario, study, *asked), told)
            return EXIT_ANSWERED
        answer = recommend(scenario, study, *asked)
        checked = check_today(profile, study)
    _print(args, answer, told, checked)
    if checked and not checked.trusted:
        return EXIT_NOT_TRUSTED
    return EXIT_ANSWERED if answer.meets_target else EXIT_NO_CORE_COUNT


def _scenario(args: argparse.Namespace) -> tuple[Scenario, Profile | None, Profile | None]:
    """The scenario, from the file or from measuring; its profile; and the profile with the step that is asked for."""
    settings = settings_of(args)
    if args.input is not None:
        for name in _MEASURING:
            given = getattr(args, name)
            flag = "-o (--save)" if name == "save" else f"--{name.replace('_', '-')}"
            cure = f", or say {_INSTEAD[name]}" if name in _INSTEAD else ""
            require(not given, f"{flag}: goes with measuring, but {args.input} is given; leave one out{cure}")
        scenario, profile = read_input(args.input, settings, args.cold, args.storage, step_needed=False)
        return scenario, profile, profile
    if args.command:
        check_program(args)
    told = profile = measured_and_saved(args, settings, args.storage, args.cold)
    if args.command:
        told, step = another_step(args, profile)
        args.settings, settings = [*step, *args.settings], [*step, *settings]
    return scenario_of(told, source_of(args), settings, args.cold or None, args.storage), profile, told


def _print(args: argparse.Namespace, answer: Any, profile: Profile | None, checked: Checked | None) -> None:
    from coresim.report.answer import answer_of
    from coresim.report.document import RECOMMENDATION
    from coresim.report.today import TODAY

    today, validated = TODAY.write(checked) if checked else None, _validated(profile)
    document = RECOMMENDATION.write(answer, metadata=_about(args, profile, validated), today=today)
    told = answer_of(answer, profile, source_of(args), args.settings, checked)
    proof = () if profile is None else (validated or _NOT_VALIDATED,)
    show(args, document, replace(told, provenance=(*told.provenance, *proof)).text(args.verbose))


def _print_steps(args: argparse.Namespace, answer: Any, profile: Profile) -> None:
    from coresim.report.provenance import profile_notes
    from coresim.report.steps import STEPS, ForSteps

    (notes, provenance), validated = profile_notes(profile, args.settings), _validated(profile)
    text = str(ForSteps(answer, notes, (*provenance, validated or _NOT_VALIDATED), profile.settings))
    show(args, STEPS.write(answer, metadata=_about(args, profile, validated)), text)


def _about(args: argparse.Namespace, profile: Profile | None, validated: str | None) -> dict[str, Any]:
    from coresim.report.provenance import batch_provenance, step_provenance

    about = metadata(args.seed, source_of(args), step_provenance(profile, None, args.settings), profile)
    about["loader"] = profile.loader if profile else None
    about["batch_provenance"] = batch_provenance(profile, args.settings) if profile else None
    about["validation"] = validated
    about["warnings"] = [warning._asdict() for warning in profile.warnings] if profile else []
    return about


def _validated(profile: Profile | None) -> str | None:
    """What the latest validation of this host and workload said, or None."""
    found = latest(profile.host.fingerprint, profile.workload) if profile else None
    if found is None:
        return None
    from coresim.report.validation import one_line

    return one_line(found)

"""``coresim report``: the answer as a file that can be read, printed and passed on without coresim."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from coresim.cli.attach import add_attach, read_job, source_of
from coresim.cli.common import check_writable, metadata, progress_on_stderr, settings_of, study_of, told_unsaved
from coresim.cli.flags import add_flags
from coresim.errors import EXIT_ANSWERED, EXIT_NO_CORE_COUNT, EXIT_NOT_TRUSTED
from coresim.units import visible


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    text = "Write a capacity-planning report: the answer first, then the evidence, in one file that needs no network."
    parser = subparsers.add_parser("report", help="the answer as one HTML, Markdown or PDF file", description=text)
    parser.add_argument("input", nargs="?", help="a scenario (.toml) or a saved profile (.json)")
    add_attach(parser, save=True)
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="plan.html",
        help="where to write it: .html, .pdf, or .md without charts (default plan.html)",
    )  # fmt: skip
    parser.add_argument("--title", metavar="TEXT", help="title of the report (default: names the input)")
    add_flags(parser, "idle-target", "confidence", "options", "max-cores", "seed", "set")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, simulate, write; 0 if a core count meets the target, 4 if none does."""
    from coresim.advise.recommend import recommend
    from coresim.advise.what_if import option_today, what_if
    from coresim.attaching.today import check_today, own_options
    from coresim.cli.latest import latest
    from coresim.report.answer import answer_of
    from coresim.report.content import statements
    from coresim.report.output import format_of, write_report
    from coresim.report.plain import answer_lines
    from coresim.report.plan import ledger_table, plan_report
    from coresim.report.remedies import remedies_sections
    from coresim.report.text import headline
    from coresim.sim.estimate import Plan

    check_writable(args.output)  # before its form: the name of a folder tells none
    format_of(args.output)
    scenario, profile = read_job(args, settings_of(args))
    source = source_of(args)
    with progress_on_stderr() as progress, study_of(Plan(seed=args.seed), "fast", progress) as study:
        options = args.options or own_options(profile)
        found = recommend(scenario, study, options, args.max_cores, args.confidence)
        today = check_today(profile, study)
        answer = answer_of(found, profile, source, args.settings, today)
        # What the step time rests on stands among what the answer rests on.
        about = metadata(args.seed, source, profile=profile)
        name = profile.workload if profile and args.command else Path(source).name
        title = args.title or f"CPU cores per GPU for {name}"
        ledger = latest(profile.host.fingerprint, profile.workload) if profile else None
        checked = ledger_table(ledger) if ledger else None
        option = option_today(scenario, found.point.option)
        remedies = remedies_sections(what_if(scenario, study, option=option, said=found))
        report = plan_report(answer, study.engine, about, title, remedies, checked)
        print(visible(answer_lines("", answer.today_section, statements(headline(found)[:1]))))
        # Charts are drawn and sliders simulated as it is written.
        write_report(report, args.output)
    print(f"written to {args.output}")
    told_unsaved(args)
    if today and not today.trusted:
        return EXIT_NOT_TRUSTED
    return EXIT_ANSWERED if answer.result.meets_target else EXIT_NO_CORE_COUNT

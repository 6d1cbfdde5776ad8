"""``coresim measure``: the micro-benchmarks alone, kept in a profile for later and for other machines."""

from __future__ import annotations

import argparse

from coresim.cli.attach import add_attach, measured
from coresim.cli.common import check_writable, save, show
from coresim.cli.request import add_arguments
from coresim.model.profile import Profile
from coresim.units import format_bytes, format_duration

DEFAULT_OUTPUT = "profile.json"
#: Measured times that the summary shows; those of a loop belong to a program that trains on a device.
_TOLD = ("prepare.", "receive.cpu", "accelerator.launch", "loop.")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb and its options."""
    text = "Measure what preparing samples costs here, and the training step, and keep it in a profile."
    parser = subparsers.add_parser("measure", help="measure once, keep the profile", description=text)
    add_arguments(parser)
    add_attach(parser)
    parser.add_argument(
        "-o", "--output", default=DEFAULT_OUTPUT, metavar="FILE", help="where to write (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the profile too, as JSON, alone on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, write the profile, and say what was measured; an output that cannot be written is reported before."""
    check_writable(args.output)
    profile = measured(args)
    kept = save(args, profile, args.output)
    return show(args, profile.to_dict(), summary(profile, args.output if kept else None))


def summary(profile: Profile, path: str | None) -> str:
    """What was measured, in a few lines, for people; ``path``: where it was written, if it was."""
    lines = [f"{profile.workload}, batch {profile.batch_size} ({format_bytes(profile.bytes_per_batch)})"]
    if profile.measured_batch is not None:
        lines.append(f"the loader ran with batches of {profile.measured_batch}, because larger ones are slow")
    if profile.settings is not None:
        lines.append(f"today's settings: {profile.settings}")
    for found in profile.measurements:
        if found.unit in ("s/sample", "s/batch", "s/step") and found.name.startswith(_TOLD):
            lines.append(f"  {found.name:<22} {format_duration(found.mean):>8} per {found.unit[2:]}")
    count = round(profile.host.usable_cores)
    speed = profile.speed[min(max(count, 1), len(profile.speed)) - 1]
    lines.append(f"  with {count} cores at work, each runs at {speed:.0%} of its speed alone")
    lines.append(f"step: {profile.accelerator.provenance}")
    lines += [f"warning: {what}: {value}; {remedy}" for what, value, remedy in profile.warnings]
    return "\n".join([*lines, *([f"written to {path}"] if path else [])])

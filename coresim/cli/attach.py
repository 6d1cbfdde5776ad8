"""``-- COMMAND`` behind a verb: the user's program is run, and what it told becomes the profile."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coresim.cli.common import require
from coresim.units import parse_duration

if TYPE_CHECKING:
    from coresim.model.profile import Profile

#: Verbs that take a command.
VERBS = ("recommend", "measure", "validate", "whatif", "report", "watch")


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first ``--``, and the command behind it."""
    words = list(argv)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def add_attach(parser: argparse.ArgumentParser) -> None:
    """The flags that go with ``-- COMMAND``."""
    job = parser.add_argument_group(
        "your program (behind all flags: -- python train.py --its flags)",
        "It is run as it is, measured from inside, and stopped; a few hundred batches are trained on repeated data,"
        " and files that it writes are its own affair.",
    )
    parser.set_defaults(command=[])
    job.add_argument("--patience", metavar="TIME", help="how long it may take until it trains (default: 2 min)")


def attached_profile(args: argparse.Namespace) -> Profile:
    """Run the program of ``args.command`` and give the profile of its job."""
    from coresim.attach.assemble import profile_of
    from coresim.attach.conduct import PATIENCE_S, Request, attach
    from coresim.cli.measure import progress_on_stderr
    from coresim.measuring.campaign import utc_now

    patience = parse_duration(args.patience, "--patience") if args.patience else PATIENCE_S
    require(patience > 0, "--patience: must be more than nothing")
    request = Request(tuple(args.command), patience_s=patience)
    print(
        f"coresim: runs {shlex.join(args.command)} and stops it when all is measured; a few hundred batches are trained"
        " on repeated data; files that it writes are its own affair",
        file=sys.stderr,
    )
    began, said = utc_now(), shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    with progress_on_stderr() as progress:
        found = attach(request, _forward, progress)
    return profile_of(found, args.command, said, began)


def _forward(part: bytes) -> None:
    sys.stderr.buffer.write(part)
    sys.stderr.buffer.flush()

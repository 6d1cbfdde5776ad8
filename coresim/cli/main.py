"""Entry point of the ``coresim`` command."""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import os
import re
import sys
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

from coresim import __version__
from coresim.cli.attach import VERBS as VERBS_WITH_COMMAND
from coresim.cli.attach import split
from coresim.cli.process import INTERRUPTED, interrupted, interruptible, unwritten
from coresim.errors import EXIT_INTERRUPTED, CoresimError, did_you_mean
from coresim.units import visible

#: One verb in each of these modules, but several in `coresim.cli.listing`.
MODULES = (
    "recommend", "simulate", "measure", "report", "validate", "doctor", "listing", "plan", "compare", "whatif", "watch",
    "schema",
)  # fmt: skip

#: Overrides for which other verbs have a flag.
AS_SETTING = {
    "--step-time": "accelerator.step=98 ms",
    "--batch-size": "workload.batch_size=256",
    "--gpus": "accelerator.count=8",
}
#: Characters of a message.
LONGEST = 1200


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the remedy."""

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with the code for bad usage."""
        self.exit(2, f"{self.prog}: error: {one_line(message)}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            names = [str(name) for name in action.choices or ()]
            raise argparse.ArgumentError(action, error.message + did_you_mean(str(value), names).rstrip("?")) from None

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own keeps silent where the message cannot be written.
        print(message, end="", file=file or sys.stderr)


@cache  # many commands in one process, as in tests, wait for it once
def build_parser() -> argparse.ArgumentParser:
    """The parser with every verb."""
    parser = Parser(
        prog="coresim",
        description="How many CPU cores does one GPU need to train this job, and is it cores at all?",
        epilog="Exit codes: 0 answered, 1 failure, 2 usage or bad input, 3 an optional part is missing,"
        " 4 no core count meets the target, 5 the prediction is not to be trusted here, 6 worse than --fail-over"
        " allows, 7 too uncertain to tell, 130 interrupted.",
    )
    version = f"coresim {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version and exit")
    subparsers = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for module in MODULES:
        importlib.import_module(f"coresim.cli.{module}").add_parser(subparsers)
    for verb in subparsers.choices.values():
        verb.set_defaults(parser=verb)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        interruptible()
        return _run(argv)
    except CoresimError as error:
        print(f"coresim: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:
        if not isinstance(unwritten(), BrokenPipeError):  # the reader went away (| head): there is nobody to tell
            print(f"coresim: {one_line(_refused(error))}", file=sys.stderr)
        if unwritten():  # the flush at exit must not complain either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        print("coresim: out of memory: ask for fewer workers, steps or GPUs at once", file=sys.stderr)
        return 1
    except Exception:
        # A package that is interrupted while it is imported may say that it is broken.
        if not interrupted():
            raise
        print(INTERRUPTED, file=sys.stderr)
        return EXIT_INTERRUPTED


def _run(argv: list[str] | None) -> int:
    try:
        code = int((args := _parsed(argv)).run(args))
    except SystemExit:  # help or a version was printed, or a usage error
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _parsed(argv: list[str] | None) -> argparse.Namespace:
    given = sys.argv[1:] if argv is None else argv
    words, command = split(given)
    parser = build_parser()
    if "--" in given and not command:
        parser.error("--: no command after it; write it there, such as -- python train.py, or leave -- out")
    if command and not set(words[:1]) <= set(VERBS_WITH_COMMAND):
        parser.error(f"-- {command[0]}: a command goes with {', '.join(VERBS_WITH_COMMAND)}")
    for flag, value in pairwise(words):
        if flag.startswith("--") and re.match(r"-\.?\d.*[a-z]", value):
            parser.error(f"{flag} {value}: a value that begins with - is joined to its flag: {flag}={value}")
    args, unknown = parser.parse_known_args(words)
    if unknown:
        verb, program = words[0], args.__dict__.get("input")
        flag = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(flag, args.parser._option_string_actions, 1)
        cure = f"; did you mean {near[0]}" if near else ""
        if flag in AS_SETTING and "--set" in args.parser._option_string_actions:
            cure = f"; {verb} takes it as --set '{AS_SETTING[flag]}'"
        if program and not command and verb in VERBS_WITH_COMMAND and not unknown[0].startswith("-"):
            cure = f"; a program goes after --: coresim {verb} -- {program} {unknown[0]}"
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{cure}")
    if command:
        args.command = command
    return args


def _refused(error: OSError) -> str:
    if unwritten():
        why = "stdout is closed" if error.errno == errno.EBADF else error.strerror
        return f"cannot write the answer: {why}; send it elsewhere"
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}; check the path and the room there"
    return f"{error.strerror or error}; check the current folder, and the room for temporary files (TMPDIR, else /tmp)"


def one_line(error: object) -> str:
    """The message as one line; the middle of a very long one is left out, for the remedy is at its end."""
    line = visible(" ".join(str(error).split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"

"""Entry point of the ``coresim`` command."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from coresim.cli.attach import VERBS as VERBS_WITH_COMMAND
from coresim.cli.attach import split
from coresim.errors import EXIT_INTERRUPTED, CoresimError

VERBS = (
    "recommend", "simulate", "measure", "report", "validate", "doctor", "catalogue", "presets", "storage", "workloads",
    "machines", "plan", "compare", "whatif", "watch", "schema",
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the remedy."""

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with the code for bad usage."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser with every verb."""
    parser = Parser(
        prog="coresim",
        description="How many CPU cores does one GPU need to train this job, and is it cores at all?",
        epilog="Exit codes: 0 answered, 1 failure, 2 usage or bad input, 3 an optional part is missing,"
        " 4 no core count meets the target, 5 the prediction is not to be trusted here, 6 worse than --fail-over"
        " allows, 130 interrupted.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for verb in VERBS:
        importlib.import_module(f"coresim.cli.{verb}").add_parser(subparsers)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from coresim import __version__

        print(f"coresim {__version__}")
        parser.exit()


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    words, command = split(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    if command and not set(words[:1]) <= set(VERBS_WITH_COMMAND):
        parser.error(f"-- {command[0]}: a command goes with {', '.join(VERBS_WITH_COMMAND)}")
    args = parser.parse_args(words)
    if command:
        args.command = command
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except CoresimError as error:
        print(f"coresim: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("coresim: interrupted; nothing was left behind", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (| head): there is nobody to tell, and the flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"coresim: cannot write the answer: {error.strerror}; send it elsewhere", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def one_line(error: Exception) -> str:
    """The message as one line."""
    return " ".join(str(error).split())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

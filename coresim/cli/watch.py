"""``coresim watch``: sample a training that runs, from outside."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coresim.advise.activity import diagnose
from coresim.attaching import family
from coresim.cli.common import check_writable, require, show
from coresim.cli.flags import add_flags, whole_number
from coresim.errors import CoresimError, InputError
from coresim.measure.host import read_host
from coresim.measure.system_root import check_proc
from coresim.model.activity import Tick
from coresim.report.activity import activity_document, activity_sections, tick_line, waiting
from coresim.report.plain import answer_lines
from coresim.units import LONG, parse_duration

if TYPE_CHECKING:
    from coresim.attaching.inside import Inside

STDERR = 2
#: What the kernel can be asked for.
MOST_PID = 2**31 - 1


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "watch",
        help="watch a running training from outside: GPU, cores, workers, waiting",
        description="Sample a running job's GPU utilisation (NVML), CPU, worker states, I/O wait and page faults, and"
        " end with a verdict in the words of recommend. Give a command after --, or a running process with --pid. Only"
        " for a command, hooks also show how long each rank waits for its loader. Ctrl-C ends the watch, and with it a"
        " command that it started; a process named with --pid goes on. With --pid, each sample is a line on stderr."
        " With a command these lines are not printed; --ticks FILE keeps them.",
    )
    parser.add_argument(
        "--pid", type=whole_number(1, MOST_PID), metavar="N", help="the job's first process, which runs already"
    )
    parser.add_argument("--interval", default="1 s", metavar="TIME", help="time between two samples (default: 1 s)")
    parser.add_argument("--time", metavar="TIME", help="how long to watch (default: until the job ends)")
    parser.add_argument("--ticks", metavar="FILE", help="write a line for each sample there, as they come")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="start this and watch it")
    add_flags(parser, "json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Watch, write a line per tick, and print the verdict on stdout when the job's own output is over."""
    command = [word for place, word in enumerate(args.command) if place or word != "--"]
    require(bool(command) != (args.pid is not None), "watch: give either --pid N or a command after --")
    check_proc()
    interval = parse_duration(args.interval, "--interval")
    require(interval > 0, "--interval: must be more than 0")
    until = parse_duration(args.time, "--time", LONG) if args.time else float("inf")
    with _ticks_to(args) as write:
        if not command:
            return _print(args, _watch(args.pid, interval, until, write), {})
        return _inside(args, command, interval, until, write)


def _inside(
    args: argparse.Namespace, command: list[str], interval: float, until: float, write: Callable[[str], None]
) -> int:
    """Start the command with the hooks in it, and watch it."""
    from coresim.attaching.inside import Inside
    from coresim.attaching.launch import environment, mark, session_folder
    from coresim.attaching.session import SessionPlan

    with session_folder() as folder:
        folder.write_plan(SessionPlan(only_watch=True))
        inside = Inside(folder)
        with family.adopting():
            started = _start(command, environment(folder), quiet=args.json)
            try:
                ticks = _watch(started.pid, interval, until, write, inside)
            finally:
                # A trainer that is ended leaves its workers, and a launcher its ranks, which have own sessions.
                family.end(started.pid, mark(folder))
                started.wait()
        return _print(args, ticks, inside.overall())


@contextmanager
def _ticks_to(args: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    """Where the line of a tick goes: the file, or stderr, or nowhere beside a command's own output."""
    if args.ticks is None:
        yield (lambda line: None) if args.pid is None else (lambda line: print(line, file=sys.stderr, flush=True))
        return
    check_writable(args.ticks)
    with open(args.ticks, "wb", buffering=0) as stream:

        def write(line: str) -> None:
            # A disk that is full ends no training: sampling goes on without the lines, and that is told behind the
            # answer.
            if not hasattr(args, "unsaved"):
                try:
                    stream.write(f"{line}\n".encode())
                except OSError as error:
                    args.unsaved = CoresimError(f"{args.ticks}: {error.strerror}; it keeps the samples until then")

        yield write


def _start(command: list[str], environ: dict[str, str], quiet: bool) -> subprocess.Popen[bytes]:
    """Start the job; with --json its own output goes to stderr, for stdout is the answer's alone."""
    try:
        return subprocess.Popen(command, env=environ, stdout=STDERR if quiet else None, process_group=0)
    except OSError as error:
        raise InputError(f"watch: cannot start {command[0]!r}: {error.strerror}; check the command") from None


def _watch(
    pid: int, interval: float, until: float, write: Callable[[str], None], inside: Inside | None = None
) -> list[Tick]:
    """Ticks until the job or the time ends, or Ctrl-C; what was seen by then, if anything was, is answered."""
    from coresim.attaching.watch import watch

    ticks: list[Tick] = []
    trainers: set[int] = set()
    try:
        for tick in watch(pid, interval):
            ticks.append(tick)
            waits = inside.since_last() if inside else {}
            trainers = inside.trainers() if inside else trainers
            write(" ".join([tick_line(tick.with_trainers(trainers)), *waiting(waits)]))
            if tick.second >= until:
                break
    except KeyboardInterrupt:
        if not ticks:
            raise
    # Which processes train shows only when they do.
    return [tick.with_trainers(trainers) for tick in ticks]


def _print(args: argparse.Namespace, ticks: list[Tick], waits: dict[int, float]) -> int:
    if not ticks:
        raise CoresimError("watch: the job ended before the first sample; use a shorter --interval")
    found = diagnose(ticks, read_host(load_window=0.0).usable_cores)
    by_rank = {"waiting_for_loader_by_rank": {str(rank): share for rank, share in waits.items()}}
    # A progress bar may have left the cursor in the middle of its line.
    text = ("\n" if args.pid is None else "") + answer_lines("", *activity_sections(found, waits))
    return show(args, activity_document(found, ticks) | by_rank, text)

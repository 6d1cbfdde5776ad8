"""The flags that say what to measure when no program is given, and the measurement that they request."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING

from coresim.cli.flags import add_flags, whole_number
from coresim.errors import InputError
from coresim.model.option import Option
from coresim.units import LONG, parse_duration

if TYPE_CHECKING:
    from coresim.measure.campaign import Request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what to measure; `request_from` reads them."""
    job = parser.add_argument_group("what to measure")
    add_flags(job, "workload", "dataset")
    job.add_argument("--batch-size", type=whole_number(1), metavar="N", help="samples per batch and GPU (images: 256)")
    add_flags(job, "collate", "worker-init")
    job.add_argument(
        "--staged", action="store_true",
        help="run fetch, preprocess and copy as stages in threads, option 3, and not the loader (also --options 3)",
    )  # fmt: skip
    step = parser.add_argument_group("the training step (measured where there is a CUDA device, else a record)")
    step.add_argument(
        "--step", metavar="MODULE:NAME", help="your own: train_step(batch), or a function that returns one"
    )
    step.add_argument("--step-time", metavar="TIME", help='give it, with a unit, such as "98 ms"')
    step.add_argument("--gpu", metavar="NAME", help='take a recorded step of this GPU, such as "a100"; see catalogue')
    step.add_argument("--model", metavar="NAME", help='of this net, such as "resnet50" (the default)')
    step.add_argument("--precision", metavar="NAME", help="in this precision, such as bf16 or fp32")
    step.add_argument("--device", metavar="NAME", help="where to time the step: cuda, cuda:N, or cpu")
    step.add_argument(
        "--cpu-step", action="store_true",
        help="time the net of --model, or your --step, on the CPU too, for whatif's no-gpu: up to a minute more",
    )  # fmt: skip
    time = parser.add_argument_group("how long to measure")
    add_flags(time, "build-timeout")
    time.add_argument(
        "--quick",
        action="store_true",
        help="a first answer: measure for 6 s instead of 28, about 13 s in all; slow batches of a data set may be made"
        " smaller; with a program after -- about 40 s",
    )
    time.add_argument(
        "--budget", metavar="TIME",
        help='time to measure the host\'s part, such as "2 min" (28 s; 20 s for the loader of a program after --)',
    )  # fmt: skip


def request_from(args: argparse.Namespace) -> Request:
    """What these flags ask for; InputError for a time without a unit, a wrong name, or flags that exclude another."""
    from coresim.measure.campaign import Request
    from coresim.workloads.registry import DEFAULT

    if args.dataset is not None and args.workload is not None:
        raise InputError("--dataset and --workload: each says what to measure; leave one out")
    asked = {field.name: getattr(args, field.name) for field in fields(Request)} | {
        "workload": args.workload or DEFAULT,
        "staged": args.staged or getattr(args, "options", None) == (Option.STAGED,),
    }
    for name, units in (("step_time", ("ms", "s")), ("build_timeout", LONG), ("budget", LONG)):
        if asked[name] is not None:
            asked[name] = parse_duration(asked[name], f"--{name.replace('_', '-')}", units)
    return Request(**asked)

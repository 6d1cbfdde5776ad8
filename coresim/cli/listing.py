"""The verbs that list what the package records: catalogue, presets, storage, workloads and machines."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from coresim.cli.common import show
from coresim.cli.flags import positive, whole_number
from coresim.errors import EXIT_ANSWERED
from coresim.machines.catalogue import select_rows
from coresim.machines.machines import SORTS, Filter, load_machines, read_machines, select_machines
from coresim.model.keys import choice
from coresim.model.presets import PRESETS
from coresim.model.storage import tiers
from coresim.report import listings

#: Each of these verbs with its help.
VERBS = {
    "catalogue": "list the recorded step times that stand in for a GPU that is not here",
    "presets": "list the frameworks' input pipelines, as --preset takes them, and how each was checked",
    "storage": "list the recorded storage tiers, as --storage takes them, with their sources",
    "workloads": "list the built-in jobs that --workload takes, and what each is for",
    "machines": "list GPU machines: cores per GPU, memory, bandwidth and dated prices, each with its source",
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Register the verbs."""
    found = {verb: subparsers.add_parser(verb, help=text, description=text) for verb, text in VERBS.items()}
    for verb, run in (("catalogue", catalogue), ("presets", presets), ("storage", storage), ("workloads", workloads)):
        _add_json(found[verb], run)
    found["catalogue"].add_argument("--gpu", metavar="NAME", help='only this GPU, such as "a100" or "RTX 3090"')
    found["catalogue"].add_argument("--model", metavar="NAME", help='only this net, such as "resnet50"')
    found["presets"].add_argument("name", nargs="?", help="one of them, in full")
    found["storage"].add_argument("name", nargs="?", help="only this one")
    _add_machines(found["machines"])


def _add_json(parser: Any, run: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="every field, as JSON, alone on stdout")
    parser.set_defaults(run=run)


def _add_machines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", metavar="NAME", help="only machines with this GPU, such as a100 or l40s")
    parser.add_argument("--provider", metavar="NAME", help="only this provider, such as aws")
    parser.add_argument("--name", metavar="TEXT", help="only machines whose name holds this text")
    parser.add_argument("--gpus", type=whole_number(1), metavar="N", help="only machines with so many GPUs")
    number = positive("a number")
    parser.add_argument("--min-cores-per-gpu", type=number, metavar="CORES",
                        help="only machines with at least so many cores per GPU")  # fmt: skip
    parser.add_argument("--max-price", type=number, metavar="USD",
                        help="only machines of at most this price per GPU and hour")  # fmt: skip
    parser.add_argument("--priced", action="store_true", help="only machines whose price is known")
    parser.add_argument("--sort", choices=SORTS, default="file", help="order (default: as in the file)")
    own = "your own machines instead: columns id,gpu,gpu_count,physical_cores and others"
    parser.add_argument("--file", metavar="CSV", help=own)
    form = parser.add_mutually_exclusive_group()
    _add_json(form, machines)
    form.add_argument("--csv", action="store_true", help="every field, as CSV that --file reads back")


def catalogue(args: argparse.Namespace) -> int:
    """Print the recorded steps that ``--gpu`` and ``--model`` leave; InputError for a name that matches nothing."""
    return _print(args, listings.catalogue_listing(select_rows(args.gpu, args.model)))


def presets(args: argparse.Namespace) -> int:
    """Print the presets, or the one that is named in full."""
    found = listings.presets_listing(rows := _chosen(PRESETS, args.name, "preset"))
    return show(args, found.document, listings.preset_text(rows[0]) if args.name else str(found))


def storage(args: argparse.Namespace) -> int:
    """Print the storage tiers, or the one that is named."""
    return _print(args, listings.storage_listing(_chosen(tiers(), args.name, "storage")))


def workloads(args: argparse.Namespace) -> int:
    """Print the built-in jobs."""
    from coresim.workloads.registry import DEFAULT, listing

    return _print(args, listings.workloads_listing(listing(), DEFAULT))


def machines(args: argparse.Namespace) -> int:
    """Print the machines that the filters leave; InputError for a bad file, an unknown name, or nothing left."""
    wanted = Filter(args.gpu, args.provider, args.name, args.gpus, args.min_cores_per_gpu, args.max_price, args.priced)
    rows = select_machines(read_machines(args.file) if args.file else load_machines(), wanted, args.sort)
    if args.csv:
        print(listings.machines_csv(rows), end="")
        return EXIT_ANSWERED
    return _print(args, listings.machines_listing(rows))


def _chosen(known: Mapping[str, Any], name: str | None, what: str) -> list[Any]:
    """The row of that name, or all rows where none is named; InputError for a name that is none of them."""
    return [known[choice(*known).read(name, what)]] if name else list(known.values())


def _print(args: argparse.Namespace, found: listings.Listing) -> int:
    return show(args, found.document, str(found))

"""Run a named function as a program (``python -m coresim.cli.called NAME``), if it trains instead of giving data."""

from __future__ import annotations

import sys

from coresim.workloads.named import load_object


def main() -> None:
    """Import the function that the first argument names, and call it without arguments."""
    load_object(sys.argv.pop(1), "program")()


if __name__ == "__main__":
    main()

"""``python -m coresim`` is the ``coresim`` command."""

import sys

from coresim.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())

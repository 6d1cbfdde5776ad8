"""``python -m coresim`` is the ``coresim`` command."""

import sys

from coresim.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

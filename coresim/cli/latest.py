"""The store of the latest ledger of each host and workload, so that a recommendation can show it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from coresim.errors import InputError

if TYPE_CHECKING:
    from coresim.validate.ledger import Ledger


def state_folder() -> Path:
    """``$XDG_STATE_HOME/coresim/ledgers``, else under ``~/.local/state`` (XDG Base Directory Specification 0.8).

    Raises:
        InputError: the user has no home, as in a container that runs under an arbitrary user id.
    """
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    if not os.path.isabs(base):
        raise InputError(f"{base}: not a whole path; set XDG_STATE_HOME to a folder you can write")
    return Path(base) / "coresim" / "ledgers"


def keep(ledger: Ledger) -> None:
    """Save the ledger's part of each workload as the latest ledger of that workload and this host.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        state_folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{state_folder()}: {error.strerror}; set XDG_STATE_HOME to a folder you can write") from None
    for title in dict.fromkeys(job.title for job in ledger.jobs):
        if (found := ledger.of(title)).scored:  # what says nothing does not replace what said something
            found.save(_path(ledger.host_fingerprint, title))


def latest(fingerprint: str, title: str) -> Ledger | None:
    """The latest ledger of that host and workload, or None; a damaged, older or newer one counts as none."""
    try:
        path = _path(fingerprint, title)
        if not os.access(path, os.R_OK):
            return None
        from coresim.validate.ledger import load_ledger  # slow to import, and rarely needed

        return load_ledger(path)
    except InputError:
        return None


def _path(fingerprint: str, title: str) -> Path:
    return state_folder() / f"{fingerprint}-{hashlib.sha256(title.encode()).hexdigest()[:12]}.json"

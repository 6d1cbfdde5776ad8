"""Fresh processes to measure in: spawned, single-threaded, each wait bounded, none left behind.

A child is a new interpreter (never a fork: a fork after torch may hang), in a session of its own. It ends when its
context ends, for any reason. If the parent is killed, the child reads the end of a pipe that only the parent holds, and
ends itself. A child's output goes to a nameless file; only its last line is shown, in an error.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

from coresim.errors import CoresimError, InputError
from coresim.workloads.base import describe

TIMEOUT = 60.0
START_TIMEOUT = 120.0
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")}
_BOOT = (
    "import sys; sys.path[:] = {path!r}; from coresim.measure import processes; processes.child_main({link}, {life})"
)

#: The child's end of the pipe: ``(tag, value)`` out, plain messages in.
Link = Connection

#: The longest path of a Unix socket, bytes (sun_path in linux/un.h, less its end), and what the names of our folder
#: and of the folder and the socket of multiprocessing in it take.
_SOCKET_PATH, _SOCKET_NAMES = 107, len("/coresim-12345678/pymp-12345678/listener-12345678")
_COMPILED = "TORCHINDUCTOR_CACHE_DIR"
#: How much of the end of a process's output is read.
_LAST_BYTES = 4000
#: What Python says of an object that cannot be pickled: ``TypeError: cannot pickle '_thread.lock' object`` or
#: ``PicklingError: Can't pickle <function f at 0x7f>: it's not found as m.f``.
_UNPICKLED = re.compile(r"(?:\w+\.)*(?:TypeError|AttributeError|PicklingError): [Cc]an(?:not|'t) pickle (.*)")


def single_threaded() -> None:
    """Limit torch and OpenCV to one thread if they are loaded: they do not obey the environment.

    A forked process does not have the threads that its parent started; a library that relies on them waits for ever.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    if (cv2 := sys.modules.get("cv2")) is not None:
        cv2.setNumThreads(1)


class HangError(CoresimError):
    """A process said nothing for longer than it was given."""


class DeathError(CoresimError):
    """A process ended before its job did.

    Attributes:
        code: its exit code, or the negative number of the signal that killed it.
        last: the last line that it said, or nothing.
    """

    def __init__(self, message: str, code: int = 0, last: str = "") -> None:
        super().__init__(message)
        self.code, self.last = code, last


class Child(contextlib.AbstractContextManager["Child"]):
    """A fresh process that runs ``job(link, *args)``; use it in a ``with`` block.

    Args:
        job: a module-level function; its result arrives as ``("done", result)``.
        args: plain data for the job.
        cpu: the hardware thread to stay on, or None.
        doing: what errors say was going on.
        limited: whether libraries that obey the environment may run one thread only.
        own_files: whether its temporary files are removed with it, even if it is killed.
    """

    def __init__(
        self,
        job: Callable[..., Any],
        *args: Any,
        cpu: int | None = None,
        doing: str = "measuring",
        limited: bool = True,
        own_files: bool = True,
    ) -> None:
        self.doing = doing
        self._link, theirs = Pipe()
        life, self._life = Pipe(duplex=False)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        # The files of multiprocessing (sockets of a loader's workers) must not outlive a process that is killed.
        self._room = _room() if own_files else None
        files = {"TMPDIR": self._room.name, _COMPILED: _compiled()} if self._room else {}
        boot = _BOOT.format(path=[entry or os.getcwd() for entry in sys.path], link=theirs.fileno(), life=life.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-c", boot],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=(theirs.fileno(), life.fileno()),
            start_new_session=True,
            env={**os.environ, **(ONE_THREAD if limited else {}), **files},
        )
        theirs.close()
        life.close()
        self.send((job, args, cpu))

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._link.close()
        self._life.close()
        self._said.close()
        if self._room is not None:
            self._room.cleanup()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message to the job."""
        try:
            self._link.send(message)
        except OSError:
            raise self._death() from None

    def receive(self, timeout: float = TIMEOUT) -> tuple[str, Any]:
        """The next ``(tag, value)`` from the job.

        Raises:
            CoresimError: the job raised (its own error, if it was one of ours).
            InputError: a process of the job's own could not send what it made.
            DeathError: the process ended.
            HangError: it said nothing for ``timeout`` seconds.
        """
        until = time.monotonic() + timeout
        try:
            while not self._link.poll(min(0.5, max(0.0, until - time.monotonic()))):
                if self._process.poll() is not None and not self._link.poll(0):
                    raise EOFError
                self._check_pickled()
                if time.monotonic() > until:
                    raise HangError(f"{self.doing}: no answer for {timeout:g} s, so it was stopped; does it hang?")
            tag, value = self._link.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if tag == "error":
            raise value
        if tag == "raised":
            raise CoresimError(f"{self.doing}: the worker process raised {value}")
        return tag, value

    def finish(self, timeout: float = TIMEOUT) -> None:
        """After its job, let the process end by itself for a while, so that what it opened is closed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def _check_pickled(self) -> None:
        """A queue of multiprocessing drops what it cannot pickle: its reader waits without end, and stderr says why."""
        what = next((found for line in self._last_lines() if (found := _UNPICKLED.match(line))), None)
        if what is not None:
            raise InputError(
                f"{self.doing}: a worker cannot send what it makes: cannot pickle {what[1].strip()[:200]};"
                " return arrays, tensors, numbers, texts, or lists and dicts of them"
            )

    def _last_lines(self) -> list[str]:
        # Read at a place of its own: the process writes where the file's own place is.
        size = os.fstat(self._said.fileno()).st_size
        text = os.pread(self._said.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES))
        return text.decode(errors="replace").strip().splitlines()

    def _death(self) -> DeathError:
        code = self._process.wait(timeout=10)
        lines = self._last_lines()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        hint = "; is memory short?" if code == -signal.SIGKILL else ""
        last = lines[-1].strip()[:200] if lines else ""
        said = f"; it last said: {last}" if last else ""
        return DeathError(f"{self.doing}: the worker process {how}{hint}{said}", code, last)


def _compiled() -> str:
    """Where torch's compiler keeps what it made: it serves the next process too, and so is not this one's own.

    The folder is named as in ``torch/_inductor/runtime/cache_dir_utils.py``.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid_{os.getuid()}"
    usual = os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))
    return os.environ.get(_COMPILED) or usual


def _room() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder in which multiprocessing can open sockets: not where TMPDIR is too long for their paths."""
    usual = tempfile.gettempdir()
    short = len(os.fsencode(usual)) + _SOCKET_NAMES <= _SOCKET_PATH
    return tempfile.TemporaryDirectory(prefix="coresim-", dir=usual if short else "/tmp", ignore_cleanup_errors=True)


def child_main(link: int, life: int) -> None:
    """What a fresh process runs: its job, with any error sent home as one line."""
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    connection = Connection(link)
    try:
        job, args, cpu = connection.recv()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        connection.send(("done", job(connection, *args)))
    except CoresimError as error:
        connection.send(("error", type(error)(str(error))))
    except Exception as error:
        connection.send(("raised", describe(error)))


def _end_with_parent(life: int) -> None:
    os.read(life, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)

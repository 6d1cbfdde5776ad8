"""A JupyterLab of our own that shows a notebook of sliders, and a mouse in a headless browser."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = "02_what_if.ipynb"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = [
    name for name in ("jupyterlab", "ipykernel", "ipywidgets", "playwright") if not importlib.util.find_spec(name)
]
MISSING += [] if CHROMIUM else ["a chromium binary"]
#: For each thing that is waited for.
PATIENCE_S = 120.0
ENDED_S = 20.0


@contextmanager
def lab(folder: Path) -> Iterator[str]:
    """Address of a JupyterLab of our own, with its token, that shows the notebook; it ends with its kernels."""
    folders = {name: folder / name.lower() for name in ("CONFIG", "DATA", "RUNTIME")}
    page = folders["CONFIG"] / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True)
    # It would ask whether to fetch news, and hide what lies below the question.
    page.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}))
    work = folder / "work"
    work.mkdir()
    for name in (NOTEBOOK, "profile.json"):
        shutil.copy(ROOT / "notebooks" / name, work)
    paths = {f"JUPYTER_{name}_DIR": str(folder) for name, folder in folders.items()}
    paths |= {"JUPYTERLAB_WORKSPACES_DIR": str(folder / "spaces"), "JUPYTERLAB_SETTINGS_DIR": str(folder / "set")}
    paths |= {"IPYTHONDIR": str(folder / "ipython")}
    paths["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    token = secrets.token_hex()
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
             "--ServerApp.port=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={work}"],
            env={**os.environ, **paths}, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield f"{address(server, folders['RUNTIME'], folder / 'log')}lab/tree/{NOTEBOOK}?token={token}"
        finally:
            end(server)


def address(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    """Where the server says that it listens."""
    until = time.monotonic() + PATIENCE_S
    while server.poll() is None and time.monotonic() < until:
        for path in runtime.glob("jpserver-*.json"):
            # It may be there before it is written.
            if path.read_text().endswith("}"):
                return str(json.loads(path.read_text())["url"])
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()}")


def end(server: subprocess.Popen[bytes]) -> None:
    """A server that is told to end stops its kernels; none of them is left, whatever happens."""
    family = [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]
    server.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs(family, ENDED_S)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, ENDED_S)


def run_all(page: Any, address: str) -> None:
    """Open the notebook and run it, as a reader would."""
    page.goto(address)
    page.get_by_text("| Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('[data-command="runmenu:run-all"]').click()
    # The last cell has run: as many pictures below cells as the notebook keeps.
    page.locator(".jp-InputPrompt", has_text="[5]:").wait_for()
    page.get_by_text("| Idle").wait_for()


def drag(page: Any, slider: Any, by: float) -> None:
    """Move a slider's handle by so many pixels, and let go."""
    handle = slider.locator(".noUi-handle")
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by, y, steps=4)
    page.mouse.up()


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """The notebook's page in a headless browser, every cell run."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1300, "height": 1500})
            page.set_default_timeout(1e3 * PATIENCE_S)
            run_all(page, address)
            yield page
        finally:
            browser.close()

"""How long letting go of a slider takes here: the whole redraw, and the same beside a plain figure of matplotlib's.

Run it with ``python benchmarks/redraw.py [workers ...]``. The plain figure has two empty panels, drawn to PNG: what a
picture of matplotlib's costs before anything is in it. Ratios are of medians measured in turn, in one run.

``python benchmarks/redraw.py --lab`` times what a reader sees: `notebooks/02_what_if.ipynb` in a real JupyterLab, each
of its sliders dragged to and fro with the mouse in a headless browser. The browser's clock runs from the release of the
mouse button to the new address of the picture in the page, and to the frame after that picture is loaded. It needs
what `tests/report/test_widgets.py` does.
"""

# ruff: noqa: T201

from __future__ import annotations

import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from coresim.model.scenario import read_scenario
from coresim.report.interactive import what_if_svg
from coresim.report.what_if import Knobs, curves
from coresim.sim.fast import simulate

SCENARIO = read_scenario(
    {
        "workload": {
            "batch_size": 256,
            "preprocess": {"mean": "7 ms", "cv": 0.5},
            "collate": "4 ms",
            "consumer": "1 ms",
        },
        "accelerator": {"step": "75 ms", "launch": "4 ms"},
        "host": {"speed": [1.0, 0.97, 0.95, 0.93]},
    }
)
TIMES = 15
TO_AND_FRO = 5
#: Pixels by which a slider's handle is dragged in the browser, to and fro.
DRAG = 30
#: Keep when the button was let go, when the picture's address changed, and when the new picture was shown.
WATCH = """image => {
    window.times = {};
    document.addEventListener("pointerup", () => { window.times = {released: performance.now()}; }, true);
    const watcher = new MutationObserver(() => { window.times.changed ??= performance.now(); });
    watcher.observe(image, {attributeFilter: ["src"]});
    image.addEventListener("load", () => requestAnimationFrame(() => { window.times.shown ??= performance.now(); }));
}"""


def plain() -> None:
    """Two empty panels."""
    figure = Figure(figsize=(7, 5.5), dpi=80)
    figure.subplots(2, 1)
    figure.savefig(io.BytesIO(), format="png")


def seconds(work: Callable[[], object]) -> float:
    """Wall time of doing it once."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_a_lab() -> None:
    """Print a line for each slider of the notebook, and one for all of them."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import lab  # noqa: PLC0415 - the tests' own way to open it

    if lab.MISSING:
        sys.exit(f"--lab: not here: {', '.join(lab.MISSING)}")
    with tempfile.TemporaryDirectory() as folder, lab.lab(Path(folder)) as address, lab.opened(address) as page:
        page.locator(".widget-image").first.evaluate(WATCH)
        everything: list[dict[str, float]] = []
        for slider in page.locator(".widget-slider").all():
            inward = _inward(slider)
            found = [_released(lab, page, slider, by) for _ in range(TO_AND_FRO) for by in (inward, -inward)]
            print(_round_trip(slider.locator(".widget-label").inner_text(), found))
            everything += found
        print(_round_trip("all sliders", everything))


def _inward(slider: Any) -> float:
    """A drag away from the nearer end: the notebook leaves sliders at their ends, where nothing more can be turned."""
    handle, track = (slider.locator(name).bounding_box() for name in (".noUi-handle", ".noUi-base"))
    return DRAG if handle["x"] + handle["width"] / 2 < track["x"] + track["width"] / 2 else -DRAG


def _released(lab: Any, page: Any, slider: Any, by: float) -> dict[str, float]:
    """Milliseconds after the release until the picture was another one, and until that one was shown."""
    page.evaluate("() => { window.times = {}; }")
    lab.drag(page, slider, by)
    page.wait_for_function("() => window.times.changed && window.times.shown")
    times = page.evaluate("() => window.times")
    return {name: times[name] - times["released"] for name in ("changed", "shown")}


def _round_trip(what: str, found: list[dict[str, float]]) -> str:
    changed, shown = ([one[name] for one in found] for name in ("changed", "shown"))
    return (
        f"{what}: changed {statistics.median(changed):.0f} ms after letting go (slowest {max(changed):.0f} ms),"
        f" shown {statistics.median(shown):.0f} ms (slowest {max(shown):.0f} ms), {len(found)} times"
    )


def main() -> None:
    """Print a line for each number of workers, or for each slider in a JupyterLab."""
    if sys.argv[1:] == ["--lab"]:
        in_a_lab()
        return
    for workers in map(int, sys.argv[1:] or ("2", "8", "32", "64")):
        knobs = replace(Knobs.of(SCENARIO), cores=workers, workers=workers)
        # No two redraws turn to the same numbers.
        turned = iter([replace(knobs, step=knobs.step * (1 + number / 100)) for number in range(2 * TIMES + 2)])
        jobs = {
            "redraw": lambda turned=turned: what_if_svg(SCENARIO, next(turned), simulate),
            "simulating": lambda turned=turned: curves(SCENARIO, next(turned), simulate),
            "plain figure": plain,
        }
        found: dict[str, list[float]] = {name: [] for name in jobs}
        for work in jobs.values():
            work()
        for _ in range(TIMES):
            for name, work in jobs.items():
                found[name].append(seconds(work))
        middle = {name: statistics.median(times) for name, times in found.items()}
        print(
            f"{workers:3d} workers: redraw {1e3 * middle['redraw']:.0f} ms"
            f" (of it {1e3 * middle['simulating']:.0f} ms simulating, slowest {1e3 * max(found['redraw']):.0f} ms),"
            f" {middle['redraw'] / middle['plain figure']:.2f} times an empty figure"
            f" ({1e3 * middle['plain figure']:.0f} ms)"
        )


if __name__ == "__main__":
    main()

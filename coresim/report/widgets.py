"""Sliders for a notebook (the extra ``notebook``): after each change the curve and the timeline are drawn anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coresim.errors import MissingPartError
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.report.interactive import what_if_svg
from coresim.report.what_if import Knobs
from coresim.report.words import percent
from coresim.sim.estimate import Engine

if TYPE_CHECKING:
    import ipywidgets

#: Knob, what it is called beside its slider, and the factor from the model's seconds to the slider's unit.
SLIDERS = (
    ("batch_size", "batch (samples)", None),
    ("step", "step (ms)", 1e3),
    ("preprocess", "sample (ms CPU)", 1e3),
    ("fetch", "storage (ms/sample)", 1e3),
    ("cores", "cores per GPU", None),
    ("workers", "workers per GPU", None),
    ("prefetch_factor", "prefetch factor", None),
)
LARGEST = {"batch_size": 1024, "cores": 64, "workers": 64, "prefetch_factor": 8}


def what_if_widget(scenario: Scenario, engine: Engine) -> ipywidgets.VBox:
    """Sliders above a picture; MissingPartError if ipywidgets is not installed."""
    try:
        import ipywidgets  # noqa: PLC0415 - an optional part
    except ImportError:
        raise MissingPartError("sliders need ipywidgets: pip install ipywidgets") from None
    start = Knobs.of(scenario)
    sliders = {name: _slider(ipywidgets, start, name, label, factor) for name, label, factor in SLIDERS}
    option = ipywidgets.ToggleButtons(options=[(f"{one} {one.label}", one) for one in Option], value=start.option)
    words, picture = ipywidgets.HTML(), ipywidgets.Image(format="svg+xml")

    def redraw(_: Any = None) -> None:
        turned = {name: slider.value for name, slider in sliders.items()}
        times = {name: turned[name] / factor for name, _, factor in SLIDERS if factor}
        found, svg = what_if_svg(scenario, Knobs(**turned | times, option=option.value), engine)
        picture.value = svg.encode()
        words.value = (
            f"GPU idle {percent(found.gpu_idle)}, {found.throughput_samples_per_s:.0f} samples/s,"
            f" {found.busy_cores:.1f} cores busy"
        )

    for control in (*sliders.values(), option):
        control.observe(redraw, "value")
    redraw()
    return ipywidgets.VBox([*sliders.values(), option, words, picture])


def _slider(widgets: Any, start: Knobs, name: str, label: str, factor: float | None) -> Any:
    """A slider: whole numbers from 1; times from 0 to four times their value, a sample's fetch to at least 20 ms."""
    value = getattr(start, name)
    shared = {"description": label, "continuous_update": False, "style": {"description_width": "11em"}}
    shared["layout"] = {"width": "36em"}
    if factor is None:
        return widgets.IntSlider(value=value, min=1, max=max(2 * value, LARGEST[name]), **shared)
    least = 0.0 if name == "fetch" else 0.001
    most = max(4 * value * factor, 20.0 if name == "fetch" else 1.0)
    return widgets.FloatSlider(value=value * factor, min=least, max=most, step=most / 400, **shared)

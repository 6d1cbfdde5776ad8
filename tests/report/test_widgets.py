"""The sliders in a real JupyterLab, dragged with the mouse in a headless browser."""

from __future__ import annotations

import pytest
from lab import MISSING, drag, lab, opened

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(MISSING), reason=f"the sliders are not driven: {', '.join(MISSING)} not here"),
]


def test_dragging_a_slider_draws_the_curve_anew(tmp_path):
    with lab(tmp_path) as address, opened(address) as page:
        picture, words = page.locator(".widget-image").first, page.locator(".widget-html-content").first
        slider = page.locator(".widget-slider", has_text="workers per GPU")
        before = picture.get_attribute("src"), words.inner_text(), slider.locator(".widget-readout").inner_text()
        assert picture.evaluate("image => image.naturalWidth") > 300
        assert "GPU idle" in before[1]
        drag(page, slider, -40)
        page.wait_for_function("([image, old]) => image.src !== old", arg=[picture.element_handle(), before[0]])
        page.wait_for_function("([shown, old]) => shown.innerText !== old", arg=[words.element_handle(), before[1]])
        assert int(slider.locator(".widget-readout").inner_text()) < int(before[2])
        assert idle(words.inner_text()) > idle(before[1])
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
        page.screenshot(path=tmp_path / "lab.png")


def idle(words: str) -> float:
    """The percentage in "GPU idle 10.9 %, ..."."""
    return float(words.split()[2])

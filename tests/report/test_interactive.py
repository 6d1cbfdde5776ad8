"""The report moves: a table that is simulated beforehand, and sliders that read it in a real browser, a phone's too."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from lab import CHROMIUM, PATIENCE_S
from surface import read

import coresim
from coresim.advise.candidates import JobSetting
from coresim.advise.surface import CORES, FACTORS, Surface, chosen_cores, surface_of
from coresim.advise.sweep import pipeline_of
from coresim.model.scenario import with_services
from coresim.report.html import report_html
from coresim.report.markdown import report_markdown
from coresim.report.plan import plan_report
from coresim.sim.estimate import Plan, estimate
from coresim.sim.fast import simulate

JOB = {
    "workload": {"batch_size": 8, "preprocess": {"mean": "9 ms", "cv": 0.4}, "collate": "2 ms", "consumer": "0.1 ms"},
    "accelerator": {"step": "12 ms", "launch": "1 ms", "run_ahead": 1, "count": 2},
    "host": {"cores": 4, "speed": [1.0, 0.95, 0.9, 0.85, 0.8]},
}
STAGED = {
    "workload": {"batch_size": 4}, "accelerator": {"step": "10 ms"},
    "stage": [{"name": "<script>", "service": "2 ms", "grain": "sample", "servers": 2}],
}  # fmt: skip
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def answer() -> Any:
    return coresim.recommend(JOB, options=(2,))


@pytest.fixture(scope="module")
def surface(answer: Any) -> Surface:
    found = surface_of(answer.result, simulate)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def page_text(answer: Any, surface: Surface) -> str:
    """The table is simulated once for all."""

    def known(*asked: Any) -> Surface:
        assert asked == (answer.result, simulate)
        return surface

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coresim.report.plan.surface_of", known)
        return report_html(plan_report(answer, simulate, {}))


@pytest.fixture(scope="module")
def small(answer: Any) -> tuple[str, Surface]:
    """A page with a table of few places, and the table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coresim.advise.surface.FACTORS", (0.5, 1.0, 2.0))
        table = surface_of(answer.result, simulate)
        assert table is not None
        asked: list[Any] = []
        patch.setattr("coresim.report.plan.surface_of", lambda *args: asked.append(args) or table)
        text = report_html(plan_report(answer, simulate, {}))
    assert asked == [(answer.result, simulate)]
    return text, table


# The table


@pytest.mark.slow
def test_the_table_says_what_the_report_says(answer: Any, surface: Surface) -> None:
    point = answer.result.point
    idle, rate = read(surface, surface.step, surface.cost, surface.core)
    assert idle == pytest.approx(point.estimate.gpu_idle, abs=1e-6)
    assert rate * surface.samples == pytest.approx(point.estimate.throughput_samples_per_s, rel=1e-6)
    assert surface.core == point.cores and surface.simulations > len(FACTORS) ** 2
    # And so its fewest cores are the report's.
    curve = answer.result.options[0].curve
    enough = min(p.cores for p in curve if read(surface, surface.step, surface.cost, p.cores)[0] <= 0.05)
    assert enough == point.cores


@pytest.mark.slow
def test_between_its_places_the_table_comes_near_a_simulation(answer: Any, surface: Surface) -> None:
    rng, off = random.Random(11), []
    scenario, points = answer.result.scenario, {point.cores: point for point in answer.result.options[0].curve}
    for _ in range(60):
        step, cost = (2.0 ** rng.uniform(-2.4, 2.4) for _ in range(2))
        cores = rng.choice(list(points))
        changed = with_services(with_services(scenario, step, "step"), cost, "preprocess")
        workers = max(points[cores].workers, cores)
        line = pipeline_of(JobSetting(changed, 2, cores, workers, 2))
        full = estimate(line, Plan(steps=600, inputs=0), simulate).gpu_idle
        off.append(abs(read(surface, step * surface.step, cost * surface.cost, cores)[0] - full))
    assert sum(off) / len(off) < 0.012 and max(off) < 0.06


@pytest.mark.slow
def test_the_ends_hold_on_and_more_is_never_stranger(surface: Surface) -> None:
    idle, _ = read(surface, surface.steps[-1], surface.costs[0], surface.cores[-1])
    assert idle < 0.2
    starved, _ = read(surface, surface.steps[0], surface.costs[-1], surface.cores[0])
    assert starved > 0.9
    assert all(
        0.0 <= read(surface, s, c, n)[0] <= 1.0 for s in surface.steps for c in surface.costs for n in surface.cores
    )


@pytest.mark.parametrize(("most", "at"), [(1, 1), (3, 2), (54, 27), (600, 7)])
def test_few_core_counts_stand_for_all(most: int, at: int) -> None:
    found = chosen_cores(range(1, most + 1), at)
    assert len(found) <= CORES and {1, at, most} <= set(found) and found == tuple(sorted(found))


def test_stages_of_one_s_own_have_no_sliders() -> None:
    found = coresim.recommend(STAGED, max_cores=4)
    assert surface_of(found.result, simulate) is None
    text = report_html(plan_report(found, simulate, {}))
    assert 'id="sliders"' not in text and "<script" not in text and "script-src" not in text


# The page


def test_the_policy_knows_the_one_script_by_its_hash(small: tuple[str, Surface]) -> None:
    page_text, _ = small
    [script] = re.findall(r"<script>(.*?)</script>", page_text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page_text)
    assert policy is not None
    assert unescape(policy[1]) == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert not re.search(r"fetch|XMLHttp|import\b|WebSocket|eval|innerHTML", script)


def test_the_table_in_the_page_is_the_table(small: tuple[str, Surface]) -> None:
    page_text, surface = small
    found = re.search(r'data-surface="([^"]*)"', page_text)
    assert found is not None
    table = json.loads(unescape(found[1]))
    assert table["cores"] == list(surface.cores) and table["step"] == pytest.approx(surface.step, rel=1e-5)
    assert table["share"][0][1][2] == pytest.approx(surface.share[0][1][2], rel=1e-5)
    assert "hidden" in page_text[found.start() - 40 : found.start()]


def test_other_formats_simulate_no_table(answer: Any) -> None:
    report = replace(plan_report(answer, simulate, {}), surface=lambda: pytest.fail("nobody slides in Markdown"))
    assert "What if" not in report_markdown(report)


# The browser

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="the sliders are not driven: no chromium, or no playwright, here",
)


@contextmanager
def opened(text: str, folder: Path, scripts: bool = True, **context: Any) -> Iterator[tuple[Any, list[str]]]:
    """The page in a headless browser, and what it logs and asks for."""
    from playwright.sync_api import sync_playwright

    path, noises = folder / "plan.html", list[str]()
    path.write_text(text)
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = found.new_context(java_script_enabled=scripts, **context).new_page()
            page.set_default_timeout(1e3 * PATIENCE_S)
            page.on("console", lambda message: noises.append(message.text))
            page.on("pageerror", lambda error: noises.append(str(error)))
            page.on("request", lambda request: noises.append(request.url) if "plan.html" not in request.url else None)
            page.goto(path.as_uri())
            yield page, noises
        finally:
            found.close()


def slide(page: Any, name: str, share: float) -> None:
    """Put a slider where a finger would."""
    slider = page.locator(f'#sliders input[name="{name}"]')
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 10 + share * (box["width"] - 20), box["y"] + box["height"] / 2)


def said(page: Any, name: str) -> str:
    return str(page.locator(f'[data-said="{name}"]').inner_text())


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize(
    "screen", [{"viewport": {"width": 1200, "height": 900}}, {"viewport": PHONE, "has_touch": True}]
)
def test_sliding_shows_what_the_table_says(
    page_text: str, surface: Surface, answer: Any, tmp_path: Path, screen: dict[str, Any]
) -> None:
    with opened(page_text, tmp_path, **screen) as (page, noises):
        point = answer.result.point
        assert said(page, "idle") == f"{100 * point.estimate.gpu_idle:.1f} %"
        assert said(page, "cores") == str(point.cores)
        assert said(page, "enough") == f"{point.cores} cores per GPU keep it within 5 %"
        assert said(page, "step").startswith("12 ms (1330 samples/s)") and said(page, "cost") == "9 ms"
        curve = page.locator("#sliders polyline").get_attribute("points")
        slide(page, "cost", 0.9)
        slide(page, "cores", 0.2)
        # What the page's script reads is what the table's own reader reads.
        values = {
            n: float(page.locator(f'#sliders input[name="{n}"]').input_value()) for n in ("step", "cost", "cores")
        }
        assert values["cost"] > 800 and values["cores"] < point.cores
        cost = surface.costs[0] * (surface.costs[-1] / surface.costs[0]) ** (values["cost"] / 1000)
        idle, rate = read(surface, surface.step, cost, int(values["cores"]))
        assert float(said(page, "idle").split()[0]) == pytest.approx(100 * idle, abs=0.11)
        assert float(said(page, "rate").split()[0]) == pytest.approx(rate * surface.samples, rel=0.01)
        assert idle > point.estimate.gpu_idle + 0.3 and "more than" in said(page, "enough")
        assert page.locator("#sliders polyline").get_attribute("points") != curve
        page.get_by_role("button", name="back to the answer").click()
        assert said(page, "idle") == f"{100 * point.estimate.gpu_idle:.1f} %"
        slide(page, "step", 0.95)
        assert float(said(page, "idle").split()[0]) < 1.0
        # Nothing hangs over a phone's edge, and nobody was asked for anything.
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert noises == []


@pytest.mark.browser
@needs_browser
def test_the_keyboard_slides_too(page_text: str, tmp_path: Path) -> None:
    with opened(page_text, tmp_path) as (page, _):
        before = int(said(page, "cores"))
        page.locator('#sliders input[name="cores"]').focus()
        page.keyboard.press("ArrowRight")
        assert int(said(page, "cores")) == before + 1


@pytest.mark.browser
@needs_browser
def test_without_scripts_and_on_paper_it_reads_as_before(page_text: str, answer: Any, tmp_path: Path) -> None:
    with opened(page_text, tmp_path, scripts=False) as (page, noises):
        assert not page.locator("#sliders").is_visible()
        assert page.locator(".headline").inner_text() == f"{answer.result.point.cores} CPU cores per GPU"
        assert page.locator("figure svg").first.is_visible() and noises == []
    with opened(page_text, tmp_path) as (page, _):
        assert page.locator("#sliders").is_visible()
        page.emulate_media(media="print")
        assert not page.locator("#sliders").is_visible()
        assert page.locator("figure svg").first.is_visible()


@pytest.mark.browser
@needs_browser
def test_the_policy_lets_no_other_script_run(page_text: str, tmp_path: Path) -> None:
    hostile = page_text.replace("</main>", "<script>document.title = 'taken'</script></main>", 1)
    with opened(hostile, tmp_path) as (page, noises):
        assert page.title() != "taken" and any("Content Security Policy" in noise for noise in noises)

"""Reports: one content, three formats, no request, every text escaped, the answer that the simulation gave."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("Agg")

import coresim
from coresim.cli.main import main
from coresim.errors import InputError
from coresim.model.build import SimulatedSetting
from coresim.model.option import Option
from coresim.model.profile import load_document
from coresim.model.scenario import read_scenario
from coresim.report.content import Report, Section, Table
from coresim.report.gantt import rows_of, traced
from coresim.report.html import report_html
from coresim.report.markdown import report_markdown
from coresim.report.pdf import report_pdf
from coresim.report.plan import evidence, ledger_table, plan_report
from coresim.report.provenance import provenance_words, subject_of
from coresim.report.summary import one_short
from coresim.sim.fast import simulate
from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, MeasuredTrial, RecordedPoint
from coresim.validate.predict import Prediction

pytestmark = pytest.mark.usefixtures("few_places")
ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert('x')</script> | $\\frac$ & `*_"
TABLES = {
    "workload": {"batch_size": 8, "preprocess": {"mean": "4 ms", "uncertainty": 0.1}, "fetch": "1 ms"},
    "accelerator": {"step": "12 ms", "launch": "1 ms"},
    "host": {"cores": 2, "speed": [1.0, 0.9, 0.8, 0.7, 0.55, 0.46, 0.4, 0.35, 0.32, 0.3, 0.27, 0.25]},
    "target": {"gpu_idle": 0.2},
}
STAGES = {
    "workload": {"batch_size": 4},
    "accelerator": {"step": "10 ms"},
    "stage": [{"name": HOSTILE, "service": "2 ms", "grain": "sample", "servers": 9}],
}
REMEDY = Table(("remedy", "GPU idle", "price"), (("smaller <b>", "1.0 %", "none"),))
REMEDIES = (Section("What would help, side by side", (REMEDY,)),)
LEDGER = Table(("run", "predicted", "measured"), (("a run", "5.0 %", "7.0 %"),))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Tags that have no end.
VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """What a file consists of: its text, tags with attributes, and the tags that are left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def answer():
    return replace(coresim.recommend(TABLES), step_provenance="a step that was given", notes=(HOSTILE,))


@pytest.fixture(scope="module")
def report(answer):
    return plan_report(
        answer,
        simulate,
        {"command": HOSTILE, "time_utc": "2027-01-02T03:04:05Z", "seed": 1, "unknown": None},
        HOSTILE,
        REMEDIES,
        LEDGER,
    )


@pytest.fixture(scope="module")
def html(report):
    return report_html(report)


def sections(report):
    return [section.title for section in report.sections]


def test_the_answer_stands_first_and_is_the_simulated_one(answer, report):
    point, shown = answer.result.point, dict(report.facts)
    assert report.headline == f"{point.cores} CPU cores per GPU"
    assert shown["Predicted GPU idle"].startswith(f"{100 * point.estimate.gpu_idle:.1f} % [")
    assert f"num_workers={point.workers}," in shown["DataLoader"]
    assert answer.result.verdict.name in shown["What holds the GPU back"]


def test_the_first_screen_says_on_what_it_rests_and_warns(answer, report):
    shown = dict(report.facts)
    assert shown["Provenance"] == "step: a step that was given; cost of a sample: as given, ±20 %"
    assert shown["Warnings"] == HOSTILE.partition(";")[0]
    assert dict(answer.subject) == {"data set": "batch of 8", "GPU": "not named", "host": "2 cores"}
    assert report.subject == (*answer.subject, ("reported", "2027-01-02"))
    recorded = provenance_words(answer.result.scenario, "catalogue: ResNet-50 on A100: 75 ms")
    assert recorded.startswith("step: a record of another machine; ")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (TABLES, "in order"),
        ({**TABLES, "loader": {"ordered": False}}, "as they are finished"),
        # Stages of a scenario's own: the last one says it, whatever the loader does.
        ({**STAGES, "loader": {"ordered": False}}, "in order"),
        ({**STAGES, "stage": [{**STAGES["stage"][0], "ordered": False}]}, "as they are finished"),
    ],
)
def test_the_assumptions_say_in_which_order_batches_arrive(tables, said, answer):
    found = replace(answer.result, scenario=read_scenario(tables))
    lines = [line for section in evidence(replace(answer, result=found)) for block in section.blocks
             for line in getattr(block, "lines", ())]  # fmt: skip
    assert any(line.endswith(f"batches arrive {said}.") for line in lines)


def test_the_header_names_data_set_gpu_host_and_date():
    profile = load_document(ROOT / "notebooks" / "profile.json")
    scenario = profile.scenario()
    subject = subject_of(scenario, profile)
    assert dict(subject) == {
        "data set": f"{profile.workload}, batch of 256",
        "loader": profile.loader,
        "GPU": "A100-SXM4-80GB",
        "host": f"{profile.host.cpu_model}, 2 cores",
        "measured": profile.provenance.time_utc[:10],
    }
    assert provenance_words(scenario, profile.accelerator.provenance).startswith(
        "step: a record of another machine, ±37 %; cost of"
    )
    made = Report("title", "headline", (("a", "b"),), (), subject)
    for shown in (report_html(made), report_markdown(made)):
        assert all(value in unescape(shown).replace("\\", "") for _, value in subject)


def test_the_timeline_leaves_the_workers_start_out():
    tables = {**TABLES, "workload": {**TABLES["workload"], "worker_startup": "3 s", "startup": "0.1 s"}}
    tables["workload"]["batch_size"] = 8
    figure = coresim.recommend(tables, max_cores=4).plot_timeline(simulate)
    assert figure.axes[-1].get_xlabel() == "time since the first batch was begun (s)"
    last = figure.axes[-1].get_xlim()[1]
    assert 0.05 < last < 1.0
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    # It takes 3 s of work, and the trainer 0.1 s for each worker; option 1 has none.
    assert "after a start of" in titles[1] and "start" not in titles[0]
    # Several batches and several steps are in it.
    for option, ax in enumerate(figure.axes, start=1):
        steps = ax.collections[0].get_paths()
        assert sum(path.vertices[:, 0].min() < last for path in steps) >= 3, option


def test_one_core_short_is_the_point_before(answer):
    result = answer.result
    curve = next(option.curve for option in result.options if option.option == result.point.option)
    less = next(point for point in curve if point.cores == result.point.cores - 1)
    assert one_short(result).startswith(f"with {less.cores}: GPU idle {100 * less.estimate.gpu_idle:.1f} %")
    assert less.estimate.gpu_idle > result.scenario.target.gpu_idle
    lost = 1 - less.estimate.throughput_samples_per_s / result.point.estimate.throughput_samples_per_s
    assert one_short(result).endswith(f"{100 * lost:.1f} % fewer samples/s")


def test_one_core_has_no_core_less():
    cheap = {"workload": {"batch_size": 1, "preprocess": "1 us"}, "accelerator": {"step": "1 s"}}
    assert one_short(coresim.recommend(cheap, max_cores=2).result) == "there is no fewer than one core"


def test_what_is_not_known_is_left_out(answer, report):
    bare = plan_report(answer, simulate, {"seed": 1, "unknown": None})
    assert set(sections(report)) - set(sections(bare)) == {"What would help, side by side", "Predicted and measured"}
    assert "no comparison" in report_markdown(bare) and "no comparison" not in report_markdown(report)
    assert "unknown" not in report_markdown(bare)


def test_a_validation_shows_every_setting_with_the_worst_first():
    setting = Setting("images", 16, 2, 2, 2, 2, 1.0)
    trial = MeasuredTrial(0.3, 0.014, (0, 10), (), (0, 14), 0.0, 0.002, 0.001, 0.001, 0.0)
    near = RecordedPoint(0, setting, 0.01, 50, 10, Prediction(0.31, 0.29, 0.33, 0.02), 0.2, 0.3, (trial,))
    far = replace(near, prediction=Prediction(0.18, 0.16, 0.2, 0.02))
    ledger = Ledger(
        "1", "c", "2026-01-01T00:00:00+00:00", "abc", "cpu", 2, "emulated", "g", "f" * 64, 9, (), (near, far)
    )
    table = ledger_table(ledger)
    assert table is not None
    assert [row[2:] for row in table.rows] == [
        ("30.0 %", "18.0 %", "16.0 to 20.0", "-12.0"), ("30.0 %", "31.0 %", "29.0 to 33.0", "+1.0"),
    ]  # fmt: skip
    assert "6.5 points on average over 2 settings" in table.title
    disturbed = replace(near, trials=(replace(trial, dirty="busy"),))
    assert ledger_table(replace(ledger, points=(disturbed,))) is None


def test_no_core_count_is_said_first():
    slow = {**TABLES, "workload": {**TABLES["workload"], "consumer": "40 ms"}}
    report = plan_report(coresim.recommend(slow, max_cores=12), simulate, {})
    assert report.headline == "More CPU cores will not help: serial consumer"
    assert report.facts[0][0] == "Answer"
    assert report.facts[1][0] == "What would help"
    assert not any("None" in value for _, value in report.facts)


def test_html_is_whole_and_asks_nobody(html):
    page = Page(html)
    assert page.open == []
    assert sum(tag == "script" for tag, _ in page.tags) == 1  # of the sliders: `test_interactive.py`
    assert not {"link", "img", "iframe", "object", "image"} & {tag for tag, _ in page.tags}
    attributes = [(name, value or "") for _, attrs in page.tags for name, value in attrs.items()]
    assert {value[0] for name, value in attributes if name in ("src", "href", "xlink:href")} == {"#"}
    elsewhere = [value for name, value in attributes if "//" in value and not name.startswith("xmlns")]
    assert elsewhere == []
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_html_ids_are_unique_and_every_reference_is_there(html):
    attributes = [(name, value or "") for _, attrs in Page(html).tags for name, value in attrs.items()]
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 100
    used = {value[1:] for name, value in attributes if name == "xlink:href"} | set(re.findall(r"url\(#([^)]+)\)", html))
    assert used - set(ids) == set()


def test_html_shows_hostile_texts_as_they_are(html):
    assert "".join(Page(html).texts).count(HOSTILE) >= 4
    assert html.lower().count("<script") == html.count("<script>") == 1


def test_html_has_the_charts_with_units(html):
    text = "".join(Page(html).texts)
    assert html.count("<svg") == 6
    for label in (
        "GPU idle (%)",
        "CPU cores per GPU",
        "time since the first batch was begun (s)",
        "(percentage points)",
    ):
        assert label in text
    assert "bandwidth saturated" in text
    assert "knee" in text


def test_names_of_stages_are_no_formulas():
    text = report_html(plan_report(coresim.recommend(STAGES, max_cores=6), simulate, {}))
    page = Page(text)
    assert f"{HOSTILE} 0" in "".join(page.texts)
    assert "(3 more)" in "".join(page.texts)


def test_markdown_tables_keep_their_columns(report):
    blocks = re.findall(r"(?:^\|.*\n)+", report_markdown(report), re.MULTILINE)
    assert len(blocks) == 1 + sum(isinstance(block, Table) for section in report.sections for block in section.blocks)
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert "<script" not in report_markdown(report).replace("\\<", "")


@pytest.mark.slow
def test_pdf_has_pages(report):
    content = report_pdf(report)
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type /Page\b", content)) >= 4


@pytest.mark.slow
def test_the_same_answer_gives_the_same_file(report, html):
    assert report_html(report) == html


def test_write_report_from_python(answer, tmp_path):
    coresim.write_report(answer, tmp_path / "plan.md", title="Mine", source="here", remedies=REMEDIES)
    text = (tmp_path / "plan.md").read_text()
    assert text.startswith("# Mine\n")
    assert "| source | here |" in text
    assert os.listdir(tmp_path) == ["plan.md"]


def test_write_report_refuses_an_unknown_format(answer, tmp_path):
    with pytest.raises(InputError, match=r"plan.txt: cannot tell the format.*\.html, \.md, \.pdf"):
        coresim.write_report(answer, tmp_path / "plan.txt")
    assert os.listdir(tmp_path) == []


SCENARIO = '[workload]\nbatch_size = 8\npreprocess = "4 ms"\n[accelerator]\nstep = "12 ms"\n'


@pytest.mark.parametrize(("more", "code"), [([], 0), pytest.param(["--max-cores", "1"], 4, marks=pytest.mark.slow)])
def test_the_verb_writes_the_file_and_says_whether_cores_suffice(tmp_path, capsys, more, code):
    source, out = tmp_path / "job.toml", tmp_path / "plan.html"
    source.write_text(SCENARIO)
    assert main(["report", str(source), "-o", str(out), *more]) == code
    assert capsys.readouterr().out.splitlines()[-1] == f"written to {out}"
    page = "".join(Page(out.read_text()).texts)
    assert "CPU cores per GPU for job.toml" in page
    assert f"as given in {source}" in page
    assert ("Not enough CPU cores" in page) == (code == 4)
    assert page.index("What would help, side by side") < page.index("What the remedies are")
    for remedy in ("today", "more-cores", "offline"):
        assert remedy in page
    assert "Predicted and measured" not in page


@pytest.mark.slow
def test_the_verb_shows_what_was_measured_on_the_same_host_and_job(profile_path, tmp_path, monkeypatch):
    profile = coresim.load(profile_path)
    fingerprint, job = profile.host.fingerprint, profile.workload
    setting = Setting(job, 16, 2, 2, 2, 2, 1.0)
    trial = MeasuredTrial(0.3, 0.014, (0, 10), (), (0, 14), 0.0, 0.002, 0.001, 0.001, 0.0)
    point = RecordedPoint(0, setting, 0.01, 50, 10, Prediction(0.31, 0.29, 0.33, 0.02), 0.2, 0.3, (trial,))
    ledger = Ledger(
        "1", "c", "2026-01-01T00:00:00+00:00", "abc", "cpu", 2, "emulated", "g", fingerprint, 9, (), (point,)
    )
    monkeypatch.setattr(
        "coresim.cli.latest.latest", lambda host, title: ledger if (host, title) == (fingerprint, job) else None
    )
    out = tmp_path / "plan.md"
    assert main(["report", str(profile_path), "-o", str(out), "--max-cores", "3"]) == 4
    text = out.read_text()
    assert "## Predicted and measured" in text and "31.0 %" in text


@pytest.mark.parametrize(
    ("name", "words"), [("plan.txt", "cannot tell the format"), ("no/plan.html", "no folder"), ("dir.md", "a folder")]
)
def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path, capsys, monkeypatch, name, words):
    def never(*args, **kwargs):
        raise AssertionError("simulated before it said that it cannot write")

    monkeypatch.setattr("coresim.advise.recommend.recommend", never)
    (tmp_path / "dir.md").mkdir()
    (tmp_path / "job.toml").write_text(SCENARIO)
    assert main(["report", str(tmp_path / "job.toml"), "-o", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def browse(path: Path, tmp_path: Path) -> tuple[str, list[str]]:
    """The page as a browser sees it, and what its console says."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    quiet = ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}"]
    found = subprocess.run(
        [str(CHROMIUM), *flags, *quiet, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return found.stdout, [line for line in found.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: the report is not opened in a browser")
def test_a_browser_opens_it_and_fetches_nothing(html, report, tmp_path):
    path = tmp_path / "plan.html"
    path.write_text(html)
    shown, console = browse(path, tmp_path)
    assert console == []
    assert report.headline in shown
    assert shown.count("<svg") == 6
    # That a request would be seen: the page's own policy refuses it, on the console.
    path.write_text(html.replace("</main>", '<img src="http://example.invalid/x.png"></main>'))
    assert any("Content Security Policy" in line for line in browse(path, tmp_path)[1])


def test_results_show_themselves_in_a_notebook(answer, tmp_path):
    page = Page(answer._repr_html_())
    assert page.open == []
    assert HOSTILE in "".join(page.texts)
    assert f"{answer.cores_per_gpu} CPU cores per GPU" in "".join(page.texts)


def test_profiles_show_themselves_too(profile_path):
    profile = coresim.load(profile_path)
    frame = profile.to_frame().set_index("name")
    decode = profile["prepare.step.decode"]
    assert frame.loc["prepare.step.decode", "mean"] == decode.mean
    assert (frame["low"].dropna() <= frame["mean"][frame["low"].notna()]).all()
    axes = profile.plot()
    assert axes.get_xlabel() == "time per sample (ms)"
    widths = dict(
        zip([t.get_text() for t in axes.get_yticklabels()], [p.get_width() for p in axes.patches], strict=True)
    )
    assert widths["decode"] == pytest.approx(1e3 * decode.mean)
    assert profile.workload in profile._repr_html_()
    assert len(repr(profile)) < 1000


def test_no_worker_looks_idle_at_the_end_of_a_timeline():
    """Of a job that its workers hold back, every worker is busy from the start to the edge of the picture."""
    scenario = read_scenario({"workload": {"batch_size": 8, "preprocess": "4 ms"}, "accelerator": {"step": "2 ms"}})
    line, trace = traced(scenario, SimulatedSetting(Option.OVERLAPPED, 4, 5, 2), simulate, steps=6, seed=1)
    end = float(trace.end[5])
    rows = list(rows_of(line, trace, end))
    busy = {row.label: sum(min(bar.end, end) - bar.start for bar in row.bars) for row in rows[2:]}
    assert list(busy) == ["loader 0", "loader 1", "loader 2", "loader 3"]
    assert min(busy.values()) > 0.99 * end


def test_the_timeline_of_an_answer_has_a_panel_for_each_option(answer):
    titles = [ax.get_title(loc="left") for ax in answer.plot_timeline(simulate).axes]
    point = answer.result.point
    assert [title[:8] for title in titles] == ["Option 1", "Option 2", "Option 3"]
    assert f"({point.cores} cores, {point.workers} workers)" in titles[point.option - 1]

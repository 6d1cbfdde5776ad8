"""The answer in a terminal: ten lines are the whole of it, warnings that change it come first, no two are alike."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import coresim
from coresim.cli.main import main
from coresim.report.provenance import merged
from coresim.report.summary import CHANGING
from coresim.report.terminal import LINES, _cut, _within
from coresim.report.words import WIDTH

PROFILE = Path(__file__).parents[2] / "notebooks" / "profile.json"
JOB = {
    "workload": {"batch_size": 8, "preprocess": {"mean": "4 ms", "uncertainty": 0.02}, "batch_bytes": 1e6},
    "accelerator": {"step": {"mean": "12 ms", "uncertainty": 0.01}},
    "host": {"cores": 2, "memory_bytes": 1e9, "shm_bytes": 1e8},
}
BUSY = "preparing samples: the machine was busy: 83 of 738 repeats left out; close other programs and measure again"
VARIES = (
    "transport.send varies between processes: deviation 67%; close other programs and measure again, or give more time"
)
RECORDED = "a recorded step stands in for the one of your dataset: ResNet-50 on A100; time your own with --step"


def told(*settings: str, max_cores: int | None = None, notes: tuple[str, ...] = (), verbose: bool = False) -> list[str]:
    found = coresim.recommend(JOB, settings=settings, max_cores=max_cores, engine="fast")
    return type(found)(found.result, "measured: a net", notes, (), found.subject).text(verbose).splitlines()


def block(lines: list[str]) -> list[str]:
    return lines[: lines.index("")] if "" in lines else lines


@pytest.mark.parametrize(
    "settings",
    [
        (), ("workload.consumer=15 ms",), ("host.shm_bytes=1e6",), ("loader.library_threads=8", "host.cores=4"),
        ("loader.preset=tf.data",), ("workload.fetch=300 ms", "host.storage_streams=1"), ("host.threads_per_core=2",),
        ("target.gpu_idle=0.5", "accelerator.count=4"), ("accelerator.step.uncertainty=0.3",),
    ],
)  # fmt: skip
def test_the_first_ten_lines_are_the_whole_answer(settings: tuple[str, ...]) -> None:
    first = block(told(*settings, max_cores=6, notes=(BUSY, VARIES, RECORDED)))
    assert len(first) <= LINES and all(len(line) <= WIDTH for line in first)
    text = " ".join(" ".join(first).split())
    for part in (" per GPU", "On: batch of 8", "How sure: ", "step: measured", "What holds the GPU back: ", "Next: "):
        assert part in text, (part, first)
    assert first[0].startswith("Warning: a recorded step stands in")
    assert " ..." not in text or len(first) == LINES


def test_what_to_do_next_is_what_helps_most() -> None:
    def following(*settings: str, max_cores: int | None = None) -> str:
        text = " ".join(" ".join(block(told(*settings, max_cores=max_cores))).split())
        return text.partition("Next: ")[2]

    assert following("workload.consumer=15 ms", max_cores=4).startswith("send fewer, larger tensors")
    assert following("accelerator.step.uncertainty=0.2", max_cores=6).startswith("give the step's time (--set")
    assert "coresim whatif shows what would help on this host's 2 cores" in following()
    assert following("host.cores=8").startswith("use these settings; coresim validate")


def test_an_answer_with_threads_takes_no_lock_for_granted_without_a_word() -> None:
    unless = "if no thread waits for Python's lock"
    job = {**JOB, "host": {"cores": 8}}

    def text(option: int, **loader: object) -> str:
        found = coresim.recommend({**job, "loader": loader}, options=[option], engine="fast")
        return " ".join(found.text(False).split())

    threads = text(3)
    assert f"workers, {unless}: GPU idle" in threads and "Next: --options 1,2 answers for worker processes" in threads
    # Processes have a lock each, the share is said, or the preset's stages are no threads of Python.
    assert all(unless not in text(*known) for known in ((2,), (1,)))
    assert unless not in text(3, gil=0.05) and unless not in text(3, preset="tensorflow-staged")


def test_warnings_that_change_the_answer_come_first_and_no_two_are_alike() -> None:
    lines = told(notes=(BUSY, VARIES, BUSY, RECORDED))
    assert lines[0].startswith("Warning: a recorded step stands in for the one of your dataset: ResNet-50 on A100")
    behind = " ".join(" ".join(lines[lines.index("") :]).split())
    assert behind.count("close other programs and measure again, or give more time") == 1
    assert behind.count("83 of 738") == 1 and "transport.send varies between processes" in behind
    assert behind.endswith("--verbose shows the options, the curve and the evidence")


def test_warnings_of_one_cure_are_one() -> None:
    assert merged([BUSY, BUSY]) == [BUSY]
    assert merged([BUSY, RECORDED, VARIES]) == [
        "preparing samples: the machine was busy: 83 of 738 repeats left out, transport.send varies between processes:"
        " deviation 67%; close other programs and measure again, or give more time",
        RECORDED,
    ]
    assert merged(["no cure"]) == ["no cure"]


def test_warnings_that_change_the_answer_are_warnings_that_are_given() -> None:
    sources = "".join(path.read_text() for path in (Path(coresim.__file__).parent).rglob("*.py"))
    for beginning in CHANGING:
        assert sources.count(f'"{beginning}') >= 2, beginning


def test_verbose_has_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["recommend", str(PROFILE), "--max-cores", "3", "--options", "2"]
    assert main(words) == 4
    short = capsys.readouterr().out
    assert main([*words, "--verbose"]) == 4
    long = capsys.readouterr().out
    assert len(block(short.splitlines())) <= LINES and block(long.splitlines()) == block(short.splitlines())
    for part in ("Provenance", "Options  ", "Lower bound:", "GPU idle over cores per GPU", "Warnings"):
        assert part in long and part not in short


@pytest.mark.timeout(60)
def test_lines_of_any_words_are_cut_to_their_number() -> None:
    """Long words need more lines than their letters do; cutting must come to an end all the same."""
    rng = random.Random(5)
    for _ in range(20):
        lengths = [[rng.choice((3, 8, 40, 100)) for _ in range(rng.randint(1, 60))] for _ in range(rng.randint(1, 9))]
        entries = [" ".join("x" * length for length in words) for words in lengths]
        found = _within(entries)
        assert len(found) <= max(LINES, len(entries)) and all(len(line) <= WIDTH for line in found)


def test_an_entry_is_cut_at_the_end_of_a_clause() -> None:
    entry = "How sure: within the target; the step is recorded; not checked against a real run here"
    assert _cut(entry, 200) == entry
    assert _cut(entry, 60) == "How sure: within the target; the step is recorded; ..."
    assert _cut(entry, 45) == "How sure: within the target; ..."
    assert _cut("How sure: " + "word " * 20, 40) == "How sure: word word word word word ..."
    assert all(len(_cut(entry, size)) <= size for size in range(8, 100))


def test_a_warning_that_is_cut_is_told_in_full_below(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["recommend", str(PROFILE), "--max-cores", "3", "--options", "2"]
    document = json.loads(PROFILE.read_text())
    long = ["the machine was busy while costs were measured", "by others " * 40 + "that is all", "measure again"]
    document["warnings"] = [dict(zip(("what", "value", "remedy"), long, strict=True))]
    busy = tmp_path / "busy.json"
    busy.write_text(json.dumps(document))
    assert main([*words[:1], str(busy), *words[2:]]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert "that is all" not in " ".join(block(lines)) and "..." in block(lines)[1]
    assert "that is all" in " ".join(lines) and "measure again" in " ".join(lines)


@pytest.mark.slow
def test_settings_of_a_loader_that_misses_the_target_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    """They stand there to be copied; of this job three stages meet the target, and two do not with any cores."""
    job = str(Path(__file__).parents[2] / "docs" / "job.toml")

    def first_screen(*more: str) -> str:
        assert main(["recommend", job, *more]) == 0
        return " ".join(capsys.readouterr().out.split())

    missed = first_screen("--set", "accelerator.step=49ms")
    assert "option 3 (staged)" in missed and "over the target): num_workers=" in missed
    assert "With a DataLoader: num_workers=" in first_screen()

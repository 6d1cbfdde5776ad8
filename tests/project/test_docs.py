"""README and docs: every command that they show is one that the parser takes, and nearly all of them are run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import coresim.workloads
from coresim.advise.remedies import REMEDIES
from coresim.cli.listing import VERBS
from coresim.cli.main import MODULES, build_parser, main
from coresim.errors import EXIT_ANSWERED, EXIT_NO_CORE_COUNT, EXIT_NOT_TRUSTED, EXIT_UNTOLD
from coresim.model.load import load_input, scenario_of
from coresim.model.presets import PRESETS
from coresim.model.scenario import read_scenario

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS = 900
#: What ends one command of a line and begins the next.
BETWEEN = {"&&", "||", ";", "|"}


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each command in fenced sh blocks: the words behind ``coresim``, and the user's own command behind ``--``."""
    for block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command: list[str] = []
            for word in [*shlex.split(line, comments=True), ";"]:
                if word not in BETWEEN:
                    command.append(word)
                    continue
                if command and command[0].rpartition("/")[2] == "coresim":
                    end = command.index("--") if "--" in command else len(command)
                    yield command[1:end], command[end + 1 :]
                command = []


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the parser has against those words; nothing is run."""
    try:
        build_parser().parse_args(words)
    except SystemExit:
        return capsys.readouterr().err.strip()
    return ""


def missing_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    return [link for link in links if "://" not in link and not (page.parent / link).exists()]


SHOWN = [(page.name, words) for page in PAGES for words, _ in commands(page.read_text())]


@pytest.mark.parametrize(("page", "words"), SHOWN, ids=[f"{page}: {shlex.join(words)}" for page, words in SHOWN])
def test_every_command_is_one_that_the_parser_takes(
    page: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint(words, capsys) == ""


#: What a command is run with: files that are here, or nothing.
PROFILE = ROOT / "notebooks" / "profile.json"
FILES = {"docs/job.toml": ROOT / "docs" / "job.toml", "profile.json": PROFILE}
#: What makes a command take seconds: CI runs them.
LONG = {"profile.json", "accelerator.count=8"}
RUN = [
    pytest.param(words, marks=[pytest.mark.slow] * bool(LONG & {*words}), id=shlex.join(words))
    for _, words in SHOWN
    if words[0] in ("machines", "presets", "storage") or {*words[1:2]} & {*FILES}
]


@pytest.fixture
def reader_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the pages speak of."""
    for name, file in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("reader_folder")
@pytest.mark.parametrize("words", RUN)
def test_commands_answer_where_they_need_no_measuring(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # 4 is an answer too: no core count meets the target.
    assert main(words) in (0, 4)
    assert capsys.readouterr().out or Path(words[-1]).stat().st_size > 0


#: A reader's own files, in the folder in which the pages' commands that measure are run.
OWN = {
    "pkg/__init__.py": "",
    "pkg/mod.py": """
        import torch
        from torch.utils.data import default_collate as fn

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 2000
            def __getitem__(self, index):
                return torch.rand(3, 64, 64).mean(0), index % 10

        def factory():
            return Data()

        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * 64, 10))
        optimizer = torch.optim.SGD(net.parameters())

        def train_step(batch):
            torch.nn.functional.cross_entropy(net(batch[0]), batch[1]).backward()
            optimizer.step()
            optimizer.zero_grad()

        class Class:
            def method(self):
                return fn([Data()[index] for index in range(32)])
        """,
    "pkg/data.py": """
        import torch
        from pkg.mod import Data

        train_loader = torch.utils.data.DataLoader(Data(), 32, num_workers=2)

        def begin(worker):
            pass
        """,
    "path/to/train-file.py": """
        import torch

        def make_dataset():
            return torch.utils.data.TensorDataset(torch.rand(2000, 10))
        """,
    "train.py": """
        import os
        from pkg.data import train_loader
        from pkg.mod import Class, train_step

        feeder = Class()
        for _ in range(int(os.environ["EPOCHS"])):
            if "OWN_LOADER" in os.environ:
                train_step(feeder.method())
            else:
                for batch in train_loader:
                    train_step(batch)
        """,
    "start.sh": "#!/bin/sh\nexec python train.py",
}
#: Of the commands that measure, those that are not run: one asks for minutes, one for an hour, one for a running job.
LEFT_OUT = [
    "validate",
    "validate --grid calibration/grid.toml -o calibration/NAME.ledger.json",
    "watch --pid 4242 --time 60s",
]
#: Exit codes that are answers too: no core count meets the target, the prediction for a busy machine is not to be
#: trusted, two equal profiles do not tell.
ANSWERS = {
    "recommend": (EXIT_NO_CORE_COUNT, EXIT_NOT_TRUSTED), "whatif": (EXIT_NOT_TRUSTED,), "report": (EXIT_NOT_TRUSTED,),
    "validate": (EXIT_NOT_TRUSTED,), "compare": (EXIT_UNTOLD,),
}  # fmt: skip
#: Nobody is asked to wait longer than needed.
QUICK = {"recommend", "measure", "validate"}
MEASURED = list(
    dict.fromkeys(
        (shlex.join(words), shlex.join(program))
        for page in PAGES
        for words, program in commands(page.read_text())
        if words not in [list(one.values[0]) for one in RUN]
    )
)


@pytest.fixture
def project_folder(reader_folder: None) -> dict[str, str]:
    """A reader's project in the current folder, and the environment in which its commands are found."""
    for name, text in OWN.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(textwrap.dedent(text))
    Path("start.sh").chmod(0o755)
    spectra = str(coresim.workloads.__doc__).partition("::\n")[2].partition("\nthen")[0]
    Path("spectra.py").write_text(textwrap.dedent(spectra))
    (fleet,) = blocks((ROOT / "docs" / "fleets.md").read_text(), "toml")
    Path("fleet.toml").write_text(fleet)
    shutil.copy("docs/job.toml", "job.toml")
    for name in ("old.json", "new.json"):
        shutil.copy(PROFILE, name)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return dict(os.environ) | {"PATH": path, "OMP_NUM_THREADS": "1", "EPOCHS": "100000000"}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("words", "program"), [one for one in MEASURED if one[0] not in LEFT_OUT])
def test_commands_that_measure_answer(words: str, program: str, project_folder: dict[str, str]) -> None:
    own = shlex.split(program.replace("--nproc-per-node=8", "--nproc-per-node=2"))  # this machine is smaller
    called = shlex.split(words)
    called += ["--quick"] * (called[0] in QUICK and "--quick" not in called)
    if "--loader-hook" in called:
        project_folder["OWN_LOADER"] = "1"
    if "--step" in called:
        called += ["--device", "cpu"]  # there is no GPU here
    if called[0] == "watch":  # to the end of the program
        project_folder["EPOCHS"] = "5"
    command = [sys.executable, "-m", "coresim", *called, *(["--", *own] if own else [])]
    done = subprocess.run(command, env=project_folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (EXIT_ANSWERED, *ANSWERS.get(called[0], ())), done.stderr
    assert done.stdout and "Traceback" not in done.stderr


def test_commands_that_are_left_out_are_shown() -> None:
    assert {*LEFT_OUT} <= {words for words, _ in MEASURED}


@pytest.mark.usefixtures("reader_folder")
def test_python_that_is_shown_runs() -> None:
    shown = [block for page in PAGES for block in blocks(page.read_text(), "python") if "import coresim" in block]
    assert shown, "no page shows how to use coresim from Python"
    for block in shown:
        found: dict[str, object] = {}
        exec(compile(block, "a page", "exec"), found)
        assert found.keys() - {"coresim", "__builtins__"}, "what is shown gives nothing"


def test_every_verb_is_shown_somewhere() -> None:
    text = " ".join(page.read_text() for page in PAGES)
    assert [verb for verb in {*MODULES, *VERBS} - {"listing"} if f"coresim {verb}" not in text] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert missing_links(page) == []


def test_the_scenario_that_is_shown_is_the_one_in_the_repository() -> None:
    (shown,) = blocks((ROOT / "docs" / "files.md").read_text(), "toml")
    tables = tomllib.loads((ROOT / "docs" / "job.toml").read_text())
    assert tomllib.loads(shown) == tables
    read_scenario(tables)


def test_settings_that_are_shown_can_be_set() -> None:
    scenario, _ = load_input(ROOT / "docs" / "job.toml")
    parser = build_parser()
    settings = [text for _, words in SHOWN for text in getattr(parser.parse_args(words), "settings", ())]
    assert settings
    for setting in settings:
        scenario_of(scenario, "docs/job.toml", [setting])


def test_the_lists_of_remedies_and_presets_are_whole() -> None:
    remedies = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "remedies.md").read_text(), flags=re.MULTILINE)
    assert remedies == [remedy.name for remedy in REMEDIES]
    rows = re.findall(r"^\| (`.*`) \|", (ROOT / "docs" / "frameworks.md").read_text(), flags=re.MULTILINE)
    assert re.findall(r"`([\w.-]+)`", " ".join(rows)) == list(PRESETS)


# The checks themselves


def test_the_checks_see_what_they_look_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (
        "```sh\npip install x && .venv/bin/coresim recommend --cards 3  # two\n"
        "coresim whatif a \\\n  --cold -- b -c\n```\n"
        "```text\ncoresim no\n```\n"
    )
    assert list(commands(text)) == [(["recommend", "--cards", "3"], []), (["whatif", "a", "--cold"], ["b", "-c"])]
    assert "--cards" in complaint(["recommend", "--cards", "3"], capsys)
    assert "dance" in complaint(["dance"], capsys)
    assert complaint(["whatif", "a", "--cold"], capsys) == ""
    page = tmp_path / "page.md"
    page.write_text("[a](nowhere.md) ![b](page.md) [c](https://example.org)")
    assert missing_links(page) == ["nowhere.md"]

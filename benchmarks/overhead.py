"""What watching from inside costs a training loop: ``python benchmarks/overhead.py [repeats]``.

One Lightning job whose step works for 1, 3 and 10 ms of its own is run bare, with coresim's hooks watching (as
``coresim watch -- COMMAND`` does, and ``recommend`` in its first phase), and with the nearest peer (``traceml-ai``, as
``traceml run``), in turn. The job times its own batches; the first `SKIPPED` of each do not count. Before that the
hooks alone are timed: one loop of this process, `TURNS` times with them and without, in turn. That tells a few
microseconds, where whole runs differ by more.

Every figure is a ratio within one run of this file. It takes two minutes for each repeat (three unless told otherwise),
on a quiet machine, and needs ``pip install lightning traceml-ai==0.5.0``. It is no test.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from coresim.attaching.hooks import hook
from coresim.attaching.launch import session_folder
from coresim.attaching.rank import AttachedRank
from coresim.attaching.session import SessionPlan

STEPS_S = (0.001, 0.003, 0.010)
SECONDS, SKIPPED = 6.0, 100
TURNS, BATCHES = 300, 50
JOB = """
import json
import os
import time

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(L.LightningModule):
    def __init__(self, step):
        super().__init__()
        self.step, self.layer = step, torch.nn.Linear(8, 2)
        self.times = []

    def training_step(self, batch, number):
        until = time.perf_counter() + self.step
        self.times.append(until)
        loss = self.layer(batch[0]).sum()
        while time.perf_counter() < until:
            pass
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def main():
    torch.set_num_threads(1)
    found = {}
    for step in json.loads(os.environ["STEPS"]):
        module = Module(step)
        count = int(float(os.environ["SECONDS"]) / (step + 0.001)) + int(os.environ["SKIPPED"])
        loader = DataLoader(TensorDataset(torch.randn(4 * count, 8)), batch_size=4)
        trainer = L.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, loader)
        times = module.times[int(os.environ["SKIPPED"]):]
        found[str(step)] = (times[-1] - times[0]) / (len(times) - 1)
    with open(os.environ["RESULT"], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
"""


def hooks_alone(turns: int = TURNS, batches: int = BATCHES) -> list[float]:
    """Seconds that the hooks of a program that is watched add to a batch; one value for each turn."""
    import torch  # noqa: PLC0415 (the rest is imported without it)
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    torch.set_num_threads(1)
    layer, base = torch.nn.Linear(8, 2), torch.utils.data.dataloader._BaseDataLoaderIter
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)
    loader = DataLoader(TensorDataset(torch.randn(4 * batches, 8)), batch_size=4)

    def epoch() -> float:
        began = time.perf_counter()
        for (batch,) in loader:
            optimizer.zero_grad()
            layer(batch).sum().backward()
            optimizer.step()
        return (time.perf_counter() - began) / batches

    with session_folder() as folder:
        rank = AttachedRank(folder, SessionPlan(parent=os.getpid(), only_watch=True), base.__next__)
        found = []
        for _ in range(turns):
            bare, undo = epoch(), hook(base, rank)
            found.append(epoch() - bare)
            undo()
            rank.counted.clear()  # else optimizers would not be hooked again
    return found


def alone(found: list[float]) -> str:
    """What the hooks add, in words: the median of all turns and their quartiles."""
    low, middle, high = statistics.quantiles(found, n=4)
    shares = ", ".join(f"{middle / step:.2%} of {1e3 * step:g} ms" for step in STEPS_S)
    return f"hooks alone: {1e6 * middle:.1f} us a batch (quartiles {1e6 * low:.1f} to {1e6 * high:.1f}): {shares}"


def commands(job: Path, folder: Path, number: int) -> dict[str, list[str]]:
    """How each is started."""
    python, script = sys.executable, str(job)
    logs = str(folder / f"logs{number}")
    peer = "import sys; from traceml_ai.launcher.cli import main; sys.exit(main())"
    return {
        "bare": [python, script],
        "coresim": [python, "-m", "coresim", "watch", "--interval", "10 s", "--", python, script],
        "traceml-ai 0.5.0": [python, "-c", peer, "run", script, "--logs-dir", logs, "--run-name", "run"],
    }


def run(name: str, command: list[str], folder: Path) -> dict[str, float]:
    """Seconds per batch, by step."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    told = {"RESULT": str(result), "STEPS": json.dumps(STEPS_S), "SECONDS": str(SECONDS), "SKIPPED": str(SKIPPED)}
    done = subprocess.run(command, env=os.environ | told, cwd=folder, capture_output=True, text=True)
    if not result.exists():
        raise SystemExit(f"{name}: {' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(result.read_text())
    return found


def main() -> None:
    """Run all in turn, and print what each adds to a batch."""
    missing = [name for name in ("lightning", "traceml_ai") if not find_spec(name)]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not installed; pip install lightning traceml-ai==0.5.0")
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(alone(hooks_alone()), flush=True)
    seen: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        job = folder / "job.py"
        job.write_text(JOB)
        for number in range(repeats):
            for name, command in commands(job, folder, number).items():
                seen.setdefault(name, []).append(run(name, command, folder))
                times = ", ".join(f"{1e3 * found:.3f}" for found in seen[name][-1].values())
                print(f"run {number + 1} of {repeats}, {name}: {times} ms a batch", flush=True)
    print(f"one Lightning job; medians of {repeats} runs each, in turn")
    print("\n".join(table(seen)))


def table(seen: dict[str, list[dict[str, float]]]) -> list[str]:
    """What each adds to a bare batch: a line for each step, by the seconds per batch of every run."""
    beside = [name for name in seen if name != "bare"]
    lines = ["step     bare batch   " + "   ".join(f"{name:>24}" for name in beside)]
    for step in map(str, STEPS_S):
        bare = statistics.median(found[step] for found in seen["bare"])
        cells = []
        for name in beside:
            more = [found[step] - plain[step] for found, plain in zip(seen[name], seen["bare"], strict=True)]
            middle = statistics.median(more)
            cells.append(f"{1e6 * middle:+8.0f} us = {middle / bare:+7.2%}".rjust(24))
        lines.append(f"{1e3 * float(step):4.0f} ms  {1e3 * bare:8.3f} ms  " + "   ".join(cells))
    return lines


if __name__ == "__main__":
    main()

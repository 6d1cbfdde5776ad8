"""Networks and training steps: the published nets, the user's own steps, and what is said where torch is not there."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from coresim.device import models
from coresim.errors import InputError, MissingPartError


def test_missing_torch_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPartError, match="pip install torch"):
        models.load_torch()


@pytest.mark.parametrize(("name", "parameters"), [("resnet50", 25_557_032), ("resnet18", 11_689_512)])
def test_resnets_are_the_published_ones(monkeypatch, name, parameters):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    model = models.build_model(name).eval()
    assert sum(p.numel() for p in model.parameters()) == parameters
    with torch.no_grad():
        assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)
    stem = model[:4](torch.zeros(1, 3, 224, 224))
    assert stem.shape == (1, 64, 56, 56)


def test_resnet50_strides_in_the_3x3_convolution(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    model = models.build_model("resnet50")
    strided = [m.kernel_size for m in model.modules() if getattr(m, "stride", None) == (2, 2)]
    assert strided == [(7, 7)] + [(3, 3), (1, 1)] * 3
    assert isinstance(model[0], torch.nn.Conv2d)


def test_torchvision_is_preferred_where_it_imports(monkeypatch):
    pytest.importorskip("torch")
    fake = SimpleNamespace(__version__="9.9", models=SimpleNamespace(resnet18=lambda: "theirs"))
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    assert models.build_model("resnet18") == "theirs"
    assert models.describe_model("resnet18") == "resnet18 (torchvision 9.9)"
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert models.build_model("resnet18") != "theirs"
    assert models.describe_model("resnet18") == "resnet18 (coresim)"
    with pytest.raises(InputError, match="resnet50, resnet18, vit_b_16, tiny"):
        models.build_model("resnet51")


@pytest.mark.parametrize("precision", models.PRECISIONS)
def test_default_step_trains(precision):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = models.build_model("tiny")
    step = models.default_step(model, torch.device("cpu"), precision)
    batch = models.synthetic_batch(4, 16)
    seen = []
    model[4].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    before = [p.clone() for p in model.parameters()]
    assert step(batch) is None
    assert seen == [torch.bfloat16 if precision == "bf16" else torch.float32]
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_unknown_precision():
    pytest.importorskip("torch")
    with pytest.raises(InputError, match="fp32, bf16"):
        models.default_step(models.build_model("tiny"), "cpu", "fp8")


class Trainer:
    device = "cpu"

    def __call__(self, batch: object) -> object:
        return batch


def test_steps_and_factories():
    def step(batch, scale=2):
        return batch

    assert models.as_step(step, "my:step") is step
    assert models.as_step(lambda: step, "my:step") is step
    assert models.as_step(lambda: lambda: step, "my:step") is step
    assert isinstance(models.as_step(Trainer, "my:step"), Trainer)
    for wrong in (lambda model, batch: None, lambda: 7):
        with pytest.raises(InputError, match=r"my:step: write train_step\(batch\)"):
            models.as_step(wrong, "my:step")

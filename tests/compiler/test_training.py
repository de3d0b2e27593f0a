"""Training on the device gives what training on the CPU gives."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchvk_compile

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class _Classifier(nn.Module):
    """Embedding, normalisation, matrix products, a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 24)
        self.norm = nn.LayerNorm(24)
        self.hidden = nn.Linear(24, 24)
        self.head = nn.Linear(24, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).mean(1)
        x = x + F.gelu(self.hidden(self.norm(x)))
        return self.head(x)


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 40, (48, 6), generator=generator), torch.randint(
        0, 7, (48,), generator=generator
    )


def _train(model: nn.Module, make: Make, steps: int, backend: str | None) -> list[float]:
    device = next(model.parameters()).device
    tokens, labels = (tensor.to(device) for tensor in _data())
    optimizer = make(model.parameters())

    def loss_of(tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(tokens), labels)

    def update() -> None:
        optimizer.step()

    if backend is not None:
        loss_of, update = (
            torch.compile(loss_of, backend=backend),
            torch.compile(update, backend=backend),
        )
    losses = []
    for _ in range(steps):
        loss = loss_of(tokens, labels)
        loss.backward()
        update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True),
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    ],
    ids=["sgd", "momentum", "adam", "adamw", "tensor_lr"],
)
def test_compiled_training_follows_the_cpu(vk: torch.device, make: Make) -> None:
    torch.manual_seed(0)
    model = _Classifier()
    expected = _train(copy.deepcopy(model), make, 12, None)
    with torchvk_compile.audit() as audit:
        losses = _train(model.to(vk), make, 12, "torchvk")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert expected[-1] < expected[0]
    assert audit.gpu_only and audit.dispatches > 0, audit.report()


def test_at_most_one_submission_for_each_call_of_a_compiled_graph(vk: torch.device) -> None:
    torch.manual_seed(0)
    model = _Classifier().to(vk)
    compiled = torch.compile(model, backend="torchvk")
    tokens = _data()[0].to(vk)
    with torch.no_grad():
        compiled(tokens)
        torch.vk.synchronize()  # type: ignore[attr-defined]
        with torchvk_compile.audit() as audit:
            for _ in range(5):
                compiled(tokens)
    assert audit.graph_calls == 5
    assert 1 <= audit.submissions <= 5
    assert audit.dispatches > 5


def test_an_optimizer_made_before_the_move_trains_the_moved_model(vk: torch.device) -> None:
    torch.manual_seed(0)
    model = _Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.to(vk)
    tokens, labels = (tensor.to(vk) for tensor in _data())
    before = model.head.bias.detach().cpu().clone()
    F.cross_entropy(model(tokens), labels).backward()
    optimizer.step()
    assert not torch.equal(model.head.bias.detach().cpu(), before)


def test_a_model_left_on_the_cpu_trains_on_the_device(vk: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    reference = copy.deepcopy(model)
    x, y = torch.randn(20, 9), torch.randint(0, 3, (20,))
    results = []
    for net, run in ((reference, reference), (model, torch.compile(model, backend="torchvk"))):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with torchvk_compile.audit() as audit:
            for _ in range(4):
                loss = F.cross_entropy(run(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        results.append((loss.item(), net[1].running_mean.clone(), audit.dispatches))
    (expected, expected_mean, _), (loss_value, mean, dispatches) = results
    assert dispatches > 0
    assert loss_value == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(mean, expected_mean)
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())


def test_parameters_on_the_cpu_are_uploaded_only_after_they_changed(vk: torch.device) -> None:
    model = nn.Linear(64, 64)
    run = torch.compile(model, backend="torchvk")
    x = torch.randn(4, 64)
    with torch.no_grad():
        run(x)
        with torchvk_compile.audit() as audit:
            run(x)
        assert audit.uploaded_bytes == 0
        model.weight.mul_(2)
        with torchvk_compile.audit() as audit:
            result = run(x)
        assert audit.uploaded_bytes == model.weight.numel() * 4
    torch.testing.assert_close(result, model(x))

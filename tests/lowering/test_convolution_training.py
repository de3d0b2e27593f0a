"""Networks of convolutions train as on the CPU: five steps of a small CNN and of a residual block."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("fresh_graphs")


class Residual(nn.Module):
    """A basic block with a projection, then a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(16)
        self.project = nn.Conv2d(8, 16, 1, stride=2, bias=False)
        self.project_norm = nn.BatchNorm2d(16)
        self.classify = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y)) + self.project_norm(self.project(x))
        return self.classify(F.adaptive_avg_pool2d(F.relu(y), 1).flatten(1))


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(8, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 12, 3, groups=12),
        nn.Conv2d(12, 16, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


def five_steps(
    model: nn.Module, device: torch.device, layout: torch.memory_format, *, compiled: bool
) -> list[float]:
    model = model.to(device)
    run = torch.compile(model, backend="torchvk", dynamic=False) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(5):
        x = torch.randn(4, 8, 8, 8, generator=generator).contiguous(memory_format=layout).to(device)
        target = torch.randint(0, 5, (4,), generator=generator).to(device)
        loss = F.cross_entropy(run(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("make", [small_network, Residual])
def test_five_training_steps(
    vk: torch.device, make: type[nn.Module], layout: torch.memory_format
) -> None:
    model = make().to(memory_format=layout)  # type: ignore[call-overload]
    on_device = copy.deepcopy(model)
    expected = five_steps(model, torch.device("cpu"), layout, compiled=False)
    actual = five_steps(on_device, vk, layout, compiled=True)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
    for (name, a), b in zip(
        on_device.state_dict().items(), model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            a.cpu(), b, rtol=1e-2, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )

"""``torchvk bench``'s ways in processes of their own: what they answer, and what remains when one dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchvk_compile.bench import peers, ways
from torchvk_compile.bench.peers import PeerProcess
from torchvk_compile.bench.workloads import compiler, train

_STEP = {
    "workload": "train",
    "model": "mlp",
    "inputs": 16,
    "hidden": [8],
    "batch": 4,
    "seed": 0,
}


def _peer(backend: str | None = None) -> PeerProcess:
    return PeerProcess("cpu", Path(sys.executable), "torch", "cpu", backend)


@pytest.fixture(scope="module", params=[None, "aot_eager"])
def peer(request: pytest.FixtureRequest) -> Iterator[PeerProcess]:
    found = _peer(request.param)
    yield found
    found.end()


def test_a_peer_tells_its_version(peer: PeerProcess) -> None:
    assert peer.version == torch.__version__


def test_a_peer_trains_as_this_process_does(peer: PeerProcess) -> None:
    work = peer.open(_STEP)
    assert work.sample(2) > 0
    facts = work.facts()
    assert facts["first_seconds"] > 0 and facts["version"] == peer.version
    losses = work.check()["losses"]
    work.close()
    ours = ways.LocalWay("cpu-eager", "cpu", None).open(_STEP).check()["losses"]
    assert losses == pytest.approx(ours, rel=1e-5)


def test_a_peer_trains_on_data_that_it_is_sent(peer: PeerProcess) -> None:
    images, labels = torch.rand(32, 16), torch.arange(32) % 10
    names = ("train_images", "train_labels", "test_images", "test_labels")
    data = dict(zip(names, (images, labels, images, labels)))
    case = _STEP | {"epochs": 2}
    seen: list[int] = []
    outcome = peer.train(case, data, lambda epoch, accuracy: seen.append(epoch))
    assert seen == [1, 2]
    ours = train(case, data, "cpu", compiler(None), lambda: None)
    assert outcome["losses"] == pytest.approx(ours["losses"], rel=1e-5)


def test_a_failure_is_answered_and_the_peer_goes_on(peer: PeerProcess) -> None:
    with pytest.raises(RuntimeError, match="unknown model 'none'"):
        peer.open(_STEP | {"model": "none"})
    peer.open({"workload": "add", "n": 8}).close()


def test_a_peer_that_died_is_started_again() -> None:
    peer = _peer()
    work = peer.open({"workload": "add", "n": 8})
    assert peer._process is not None
    peer._process.kill()
    with pytest.raises(RuntimeError, match=r"ended|KeyError"):
        work.sample(1)
    assert peer.open({"workload": "add", "n": 8}).check()["error"] < 1e-6
    peer.end()


def test_a_peer_that_died_can_be_ended() -> None:
    peer = _peer()
    assert peer._process is not None
    peer._process.kill()
    peer.end()
    assert peer._process.poll() is not None


def test_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(RuntimeError, match="No module named 'no_such_module'"):
        PeerProcess("none", Path(sys.executable), "no_such_module", "cpu")


def test_only_wanted_ways_get_a_process(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start(name: str, backend: str | None) -> Any:
        started.append(name)
        raise RuntimeError("out of luck")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(ways, "cuda_process", start)
    monkeypatch.setattr(ways, "find_torchvulkan", lambda: None)
    field = ways.find_ways(vk, {"vk-compiled", "cuda-inductor"})
    assert started == ["cuda-inductor"]
    assert field.absent == {
        "torchvulkan": peers.TORCHVULKAN_HINT,
        "cuda-inductor": "out of luck",
    }
    assert "cuda-eager" not in field.ways and "cpu-eager" in field.ways
    field.close()

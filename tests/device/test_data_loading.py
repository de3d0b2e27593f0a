"""DataLoader workers, pinned memory, tensors sent between processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    """Rows filled with their own index, made on `device`."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index), device=self.device)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pinned", [False, True])
def test_workers_feed_the_device(vk: torch.device, workers: int, pinned: bool) -> None:
    torch.ones(1, device=vk)
    loader = DataLoader(Numbers(), batch_size=4, num_workers=workers, pin_memory=pinned)
    rows = [batch.to(vk, non_blocking=True) for batch in loader]
    assert torch.cat(rows)[:, 0].tolist() == [float(i) for i in range(8)]


def test_forked_worker_that_touches_the_device_says_so(vk: torch.device) -> None:
    torch.ones(1, device=vk)
    with pytest.raises(RuntimeError, match="forked process"):
        list(DataLoader(Numbers("vk"), num_workers=1, multiprocessing_context="fork"))


def test_tensors_travel_between_processes_as_bytes(vk: torch.device) -> None:
    script = """
        import torch
        import torch.multiprocessing as processes

        def work(inbox, outbox):
            tensor = inbox.get()
            assert str(tensor.device) == "vk:0", tensor.device
            outbox.put((tensor.fill_(7.0), torch.arange(3, device="vk")))
            inbox.get()

        if __name__ == "__main__":
            context = processes.get_context("spawn")
            inbox, outbox = context.Queue(), context.Queue()
            child = context.Process(target=work, args=(inbox, outbox))
            child.start()
            mine = torch.zeros(2, 2, device="vk")
            inbox.put(mine)
            theirs, numbers = outbox.get()
            inbox.put(None)
            child.join()
            assert mine.tolist() == [[0.0, 0.0], [0.0, 0.0]], mine.tolist()
            assert theirs.tolist() == [[7.0, 7.0], [7.0, 7.0]], theirs.tolist()
            assert numbers.tolist() == [0, 1, 2] and str(numbers.device) == "vk:0"
            print("done")
    """
    run = run_script(script)
    assert run.stdout.strip().endswith("done"), run.stderr


def test_pinned_memory_is_an_ordinary_copy(vk: torch.device) -> None:
    host = torch.arange(3.0)
    copied = host.pin_memory()
    assert torch.equal(copied, host)
    assert copied.data_ptr() != host.data_ptr()
    assert not copied.is_pinned()


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script from a file (spawned children import it) in a fresh interpreter."""
    import pathlib
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "script.py"
        path.write_text(textwrap.dedent(script))
        return subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=400, check=False
        )

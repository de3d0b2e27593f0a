"""What every test stands on: lavapipe as the device, private caches, comparison with the CPU.

In: pytest's options. Out: fixtures `vk`, `assert_close_like_cpu`; a session that fails on messages
of the Vulkan validation layer when it runs with ``--validation``.
Forbidden: opening a device before a test asks for one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_ICD_DIRECTORIES = (
    Path("/usr/share/vulkan/icd.d"),
    Path("/etc/vulkan/icd.d"),
    Path("/usr/local/share/vulkan/icd.d"),
)


def lavapipe_driver_file() -> Path | None:
    """Mesa's CPU driver: lvp_icd.json, or lvp_icd.<machine>.json in releases before 24."""
    for directory in _ICD_DIRECTORIES:
        for path in sorted(directory.glob("lvp_icd*.json")):
            return path
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--validation",
        action="store_true",
        default=os.environ.get("TORCHVK_VALIDATION", "0") not in ("", "0"),
        help="run under the Khronos validation layer and fail if it says anything",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Only lavapipe, so that results do not depend on the machine; a VK_DRIVER_FILES from outside
    # (to test another driver) is respected.
    driver = lavapipe_driver_file()
    if driver is not None and not os.environ.get("VK_ICD_FILENAMES"):
        os.environ.setdefault("VK_DRIVER_FILES", str(driver))
    if config.getoption("--validation"):
        os.environ["TORCHVK_VALIDATION"] = "1"
    # Tests share the cores with those of other processes; torch on the CPU only computes what to expect.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


_messages_of_workers = pytest.StashKey[list[str]]()


def _validation_messages(config: pytest.Config) -> list[str]:
    """What the layer said in this process, and in those that pytest-xdist has ended."""
    if not config.getoption("--validation"):
        return []
    from torchvk_compile import _runtime

    own = [str(message) for message in _runtime.validation_messages()]
    return own + config.stash.get(_messages_of_workers, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Keep the messages of a process of pytest-xdist; one that died of `error` has none."""
    messages = getattr(node, "workeroutput", {}).get("validation", [])
    node.config.stash.setdefault(_messages_of_workers, []).extend(messages)


def pytest_sessionfinish(session: pytest.Session) -> None:
    messages = _validation_messages(session.config)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["validation"] = messages
    if messages:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if not config.getoption("--validation"):
        return
    messages = _validation_messages(config)
    terminalreporter.section(f"Vulkan validation: {len(messages)} messages")
    for message in messages:
        terminalreporter.write_line(message)


@pytest.fixture(scope="session", autouse=True)
def private_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Caches of TorchVK and Inductor that start empty and end with the session."""
    directory = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCHVK_CACHE_DIR", str(directory / "torchvk"))
        environment.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory / "inductor"))
        yield directory


@pytest.fixture(scope="session")
def vk() -> Any:
    """The Vulkan device under test, as a torch.device. Fails, not skips, if there is none."""
    import torch

    if not torch.vk.is_available():  # type: ignore[attr-defined]
        pytest.fail("no usable Vulkan device; install Mesa's lavapipe (make install)")
    return torch.device("vk", 0)


@pytest.fixture
def assert_close_like_cpu(vk: Any, tmp_path: Path) -> Callable[..., None]:
    """`comparison.assert_close_like_cpu` on the device under test, keeping the Slang it makes."""
    import functools

    import comparison

    return functools.partial(comparison.assert_close_like_cpu, device=vk, slang_directory=tmp_path)

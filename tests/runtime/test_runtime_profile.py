"""Device profiles."""

from __future__ import annotations

from typing import Any

import pytest

from torchvk_compile import _runtime, errors

KNOWN_COMPONENTS = (
    *("float16", "bfloat16", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
ORDER = ["discrete", "integrated", "virtual", "other", "cpu"]


def test_devices_come_fastest_kind_first() -> None:
    profiles = [p for p in _runtime.physical_devices() if not p.null_hardware]
    assert profiles, "no Vulkan device"
    ranks = [ORDER.index(profile.device_type) for profile in profiles]
    assert ranks == sorted(ranks)
    assert [p.index for p in _runtime.physical_devices()] == list(
        range(len(_runtime.physical_devices()))
    )


def test_profile_of_a_usable_device_is_complete(device: Any) -> None:
    profile = device.profile
    assert profile.missing == []
    assert profile.int64 and profile.storage8 and profile.storage16
    assert profile.min_subgroup_size <= profile.subgroup_size <= profile.max_subgroup_size
    assert profile.shared_memory_bytes >= 16384
    assert len(profile.max_workgroup_count) == 3
    assert profile.max_allocation_bytes >= 2**30
    assert profile.heaps and any(heap["device_local"] for heap in profile.heaps)
    assert len(bytes.fromhex(profile.device_uuid)) == 16


def test_cooperative_matrices_come_with_their_shapes(device: Any) -> None:
    shapes = device.profile.cooperative_matrix_shapes
    assert bool(shapes) == device.profile.cooperative_matrix
    for shape in shapes:
        assert min(shape["m"], shape["n"], shape["k"]) > 0
        assert {shape["a"], shape["b"], shape["c"]} <= {*KNOWN_COMPONENTS}


def test_to_dict_holds_every_attribute(device: Any) -> None:
    entries = device.profile.to_dict()
    attributes = {name for name in dir(device.profile) if not name.startswith("_")} - {"to_dict"}
    assert set(entries) == attributes
    for name, value in entries.items():
        assert getattr(device.profile, name) == value


def test_attributes_are_read_only(device: Any) -> None:
    with pytest.raises(AttributeError):
        device.profile.name = "other"


def test_a_device_is_opened_once(device: Any) -> None:
    assert _runtime.device(device.profile.index) is device


@pytest.mark.parametrize("index", [-1, 1000])
def test_an_unknown_index_is_refused(device: Any, index: int) -> None:
    with pytest.raises(errors.VulkanError, match=f"no device vk:{index}"):
        _runtime.device(index)

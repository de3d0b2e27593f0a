"""Plans: recording, replay, dynamic values, faults."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from device_memory import (
    address,
    allocate,
    chain,
    chain_result,
    chain_values,
    dispatch,
    float_bits,
    floats,
    get,
    plan,
    pointer,
    put,
    word,
)

from torchvk_compile import errors

MIB = 1 << 20


@pytest.fixture
def profiling(device: Any) -> Iterator[None]:
    device.take_timings()
    device.set_profiling(True)
    yield
    device.set_profiling(False)


# More than 256 steps are submitted in several batches.
@pytest.mark.parametrize("length", [1, 2, 40, 256, 600])
def test_a_chain_of_kernels(device: Any, length: int) -> None:
    compiled = device.build_plan(chain(length))
    assert (compiled.dispatch_count, compiled.barrier_count) == (length, length - 1)
    first, second = floats(1000, 1), floats(1000, 2)
    inputs = [put(device, first), put(device, second)]
    outputs = compiled.run([address(c) for c in inputs], chain_values(1000))
    assert np.allclose(get(device, outputs[0], 1000), chain_result(first, second, length))


def test_kernels_of_a_module_do_not_share_limits(device: Any) -> None:
    arguments = [pointer(0, ("input", 0)), pointer(8, ("input", 1))]
    steps = [
        dispatch("reverse", 1, arguments),
        dispatch("reverseScaled", 1, arguments, barrier=True),
    ]
    compiled = device.build_plan(plan("reverse", steps, input_count=2))
    source = floats(6144)
    inputs = [put(device, source), put(device, np.zeros(6144, np.float32))]
    compiled.run([address(c) for c in inputs], [])
    expected = source[::-1].reshape(-1, 2)[:, ::-1].reshape(-1)
    assert np.array_equal(get(device, inputs[1], 6144), expected * np.float32(3))


def test_a_run_is_one_submission(device: Any) -> None:
    compiled = device.build_plan(chain(5))
    inputs = [put(device, floats(100, seed)) for seed in (1, 2)]
    before = device.counters()
    compiled.run([address(c) for c in inputs], chain_values(100))
    after = device.counters()
    assert after["submissions"] - before["submissions"] == 1  # the uploads ride along
    assert after["dispatches"] - before["dispatches"] == 5
    assert after["plan_runs"] - before["plan_runs"] == 1


def test_replay_needs_no_new_recording(device: Any) -> None:
    compiled = device.build_plan(chain(30))
    expected = []
    outputs = []
    before = device.counters()["recordings"]
    for seed in range(30):
        first, second = floats(500, seed), floats(500, seed + 100)
        inputs = [put(device, first), put(device, second)]
        outputs += compiled.run([address(c) for c in inputs], chain_values(500))
        expected.append(chain_result(first, second, 30))
        device.synchronize()
    assert device.counters()["recordings"] - before == 1
    for output, values in zip(outputs, expected, strict=True):
        assert np.allclose(get(device, output, 500), values)


def test_more_runs_in_flight_than_recordings(device: Any) -> None:
    compiled = device.build_plan(chain(20))
    first, second = floats(20_000, 1), floats(20_000, 2)
    inputs = [put(device, first), put(device, second)]
    outputs = []
    for _ in range(50):
        outputs += compiled.run([address(c) for c in inputs], chain_values(20_000))
    expected = chain_result(first, second, 20)
    for output in outputs:
        assert np.allclose(get(device, output, 20_000), expected)


def test_dynamic_sizes(device: Any) -> None:
    compiled = device.build_plan(chain(4))
    for count in (1, 64, 65, 5000, 3, 64, 100_000, 777, 778, 779, 780, 781, 782, 783, 784, 1):
        first, second = floats(count, count), floats(count, count + 1)
        inputs = [put(device, first), put(device, second)]
        outputs = compiled.run([address(c) for c in inputs], chain_values(count))
        actual = get(device, outputs[0], count)
        assert np.allclose(actual, chain_result(first, second, 4)), f"{count} elements"


def test_outputs_feed_the_next_run(device: Any) -> None:
    compiled = device.build_plan(chain(1))
    start = floats(1000)
    ones = put(device, np.ones(1000, np.float32))
    current = put(device, start)
    for _ in range(100):
        (current,) = compiled.run([address(current), address(ones)], chain_values(1000))
    assert np.allclose(get(device, current, 1000), start + 100)


def test_a_dispatch_without_groups_passes_its_barrier_on(device: Any) -> None:
    def scale(source: tuple, target: tuple, groups: Any) -> dict[str, Any]:
        arguments = [
            pointer(0, source),
            pointer(8, target),
            word(16, float_bits(2.0), "f32"),
            word(20, 640),
        ]
        return dispatch("scale", groups, arguments, barrier=True)

    output = {"nbytes": 2560, "shape": [640], "strides": [1], "dl_code": 2, "dl_bits": 32}
    steps = [
        scale(("input", 0), ("arena", 0), 10),
        scale(("input", 0), ("arena", 0), ("value", 0)),
        {**scale(("arena", 0), ("output", 0), 10), "barrier": False},
    ]
    compiled = device.build_plan(
        plan(
            "skipped",
            steps,
            input_count=1,
            value_count=1,
            arena_bytes=2560,
            outputs=[output],
        )
    )
    data = floats(640)
    source = put(device, data)
    before = device.counters()
    (result,) = compiled.run([address(source)], [0])
    after = device.counters()
    assert after["dispatches"] - before["dispatches"] == 2
    assert np.allclose(get(device, result, 640), (data * 2 + 1) * 2 + 1)


def test_fills_and_copies(device: Any) -> None:
    size = ("value", 0)
    steps = [
        {
            "kind": "fill",
            "label": "background",
            "buffer": ("output", 0),
            "offset": 0,
            "nbytes": 256,
            "pattern": 0x04030201,
            "barrier": False,
        },
        {
            "kind": "fill",
            "label": "odd place",
            "buffer": ("arena", 0),
            "offset": 3,
            "nbytes": size,
            "pattern": 0x0D0C0B0A,
            "barrier": False,
        },
        {
            "kind": "copy",
            "label": "copy",
            "dst": ("output", 0),
            "dst_offset": 17,
            "src": ("arena", 0),
            "src_offset": 3,
            "nbytes": size,
            "barrier": True,
        },
    ]
    output = {"nbytes": 256, "shape": [256], "strides": [1], "dl_code": 1, "dl_bits": 8}
    compiled = device.build_plan(
        plan("transfers", steps, value_count=1, arena_bytes=256, outputs=[output])
    )
    for nbytes in (0, 1, 2, 3, 4, 5, 7, 100, 101):
        (result,) = compiled.run([], [nbytes])
        expected = np.tile(np.array([1, 2, 3, 4], np.uint8), 64)
        pattern = np.tile(np.array([10, 11, 12, 13], np.uint8), 64)
        expected[17 : 17 + nbytes] = pattern[:nbytes]
        assert np.array_equal(get(device, result, 256, np.uint8), expected), f"{nbytes} bytes"


@pytest.mark.parametrize("number", [1.5, -2.25, -0.0, float("-inf")])
@pytest.mark.parametrize("dynamic", [False, True])
def test_eight_byte_arguments(device: Any, number: float, dynamic: bool) -> None:
    if not device.profile.float64:
        pytest.skip("no float64 on this device")
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))  # above 2^63 for negative numbers
    values = [bits, -(2**63)]
    arguments = [
        pointer(0, ("output", 0)),
        word(8, ("value", 0) if dynamic else values[0], "f64"),
        pointer(16, ("output", 1)),
        word(24, ("value", 1) if dynamic else values[1], "i64"),
    ]
    outputs = [
        {"nbytes": 8, "shape": [], "strides": [], "dl_code": code, "dl_bits": 64} for code in (2, 0)
    ]
    compiled = device.build_plan(
        plan("store", [dispatch("store", 1, arguments)], value_count=2, outputs=outputs)
    )
    first, second = compiled.run([], values)
    assert get(device, first, 1, np.uint64)[0] == bits
    assert get(device, second, 1, np.int64)[0] == -(2**63)


def test_threads_run_plans_concurrently(device: Any) -> None:
    shared = device.build_plan(chain(7))
    failures: list[str] = []

    def work(seed: int) -> None:
        own = device.build_plan(chain(2))
        for repeat in range(40):
            count = 100 + seed * 37 + repeat % 3
            first, second = floats(count, seed), floats(count, repeat)
            inputs = [put(device, first), put(device, second)]
            addresses = [address(c) for c in inputs]
            for compiled, length in ((shared, 7), (own, 2)):
                outputs = compiled.run(addresses, chain_values(count))
                if not np.allclose(
                    get(device, outputs[0], count), chain_result(first, second, length)
                ):
                    failures.append(f"thread {seed}, repeat {repeat}, length {length}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_a_plan_may_be_dropped_while_it_runs(device: Any) -> None:
    first, second = floats(200_000, 1), floats(200_000, 2)
    inputs = [put(device, first), put(device, second)]
    for _ in range(5):
        compiled = device.build_plan(chain(30))
        outputs = compiled.run([address(c) for c in inputs], chain_values(200_000))
        del compiled
    assert np.allclose(get(device, outputs[0], 200_000), chain_result(first, second, 30))


def test_out_of_memory_submits_nothing(device: Any) -> None:
    compiled = device.build_plan(chain(3))
    inputs = [put(device, floats(100)), put(device, floats(100))]
    addresses = [address(c) for c in inputs]
    device.synchronize()
    before = device.counters()
    allocated = device.memory_stats()["allocated_bytes.all.current"]
    values = chain_values(100)
    with pytest.raises(torch.OutOfMemoryError, match="asked for"):
        compiled.run(addresses, [*values[:3], 1 << 45])
    assert device.counters()["plan_runs"] == before["plan_runs"]
    assert device.memory_stats()["allocated_bytes.all.current"] == allocated
    (output,) = compiled.run(addresses, values)
    assert np.allclose(get(device, output, 100), chain_result(*2 * [floats(100)], 3))


def check_plan(device: Any, assertion: int) -> Any:
    arguments = [
        pointer(0, ("input", 0)),
        pointer(8, ("errors",)),
        word(16, ("value", 0)),
        word(20, assertion),
        word(24, 10, "i32"),
    ]
    return device.build_plan(
        plan("check", [dispatch("check", 1, arguments)], input_count=1, value_count=1)
    )


def test_a_failed_assertion_is_raised_at_the_next_wait(device: Any) -> None:
    message = "gather: index {0} is not below {1}, invocation {2}"
    assertion = device.register_assert(message)
    assert assertion == device.register_assert(message) > 0
    compiled = check_plan(device, assertion)
    values = put(device, np.array([1, 9, -77, 4], np.int32))
    compiled.run([address(values)], [2])
    device.synchronize()
    compiled.run([address(values)], [4])
    with pytest.raises(errors.DeviceAssertError, match="index -77 is not below 10, invocation 2"):
        device.synchronize()
    device.synchronize()  # reported once; the device works on
    compiled.run([address(values)], [4])
    with pytest.raises(errors.DeviceAssertError, match="gather"):
        get(device, values, 4, np.int32)
    assert get(device, values, 4, np.int32)[2] == -77


def test_profiling_times_every_step(device: Any, profiling: None) -> None:
    compiled = device.build_plan(chain(3))
    inputs = [put(device, floats(50_000, seed)) for seed in (1, 2)]
    for _ in range(20):
        compiled.run([address(c) for c in inputs], chain_values(50_000))
    timings = device.take_timings()
    assert [step for _, step, _, _ in timings] == ["add", "scale 1", "scale 2"] * 20
    starts = [start for _, _, start, _ in timings]
    assert starts == sorted(starts)
    assert all(name == "chain of 3" and length >= 0 for name, _, _, length in timings)
    assert sum(length for _, _, _, length in timings) > 0
    assert device.take_timings() == []


def test_profiling_leaves_steps_beside_each_other(device: Any, profiling: None) -> None:
    def scale(target: int, barrier: bool, size: int, label: str) -> dict[str, Any]:
        arguments = [
            pointer(0, ("input", 0)),
            pointer(8, ("input", target)),
            word(16, float_bits(2.0), "f32"),
            word(20, size),
        ]
        step = dispatch("scale", -(-size // 64), arguments, barrier=barrier)
        return {**step, "label": label}

    size = 1 << 18
    steps = [
        scale(1, False, size, "0 whole"),
        scale(2, False, 64, "1 small"),
        scale(3, True, size, "2 after"),
    ]
    compiled = device.build_plan(plan("beside", steps, input_count=4))
    inputs = [put(device, floats(size, seed)) for seed in range(4)]

    def barriers_of_a_run() -> int:
        before = device.counters()["barriers"]
        compiled.run([address(c) for c in inputs], [])
        device.synchronize()
        return device.counters()["barriers"] - before

    # What the steps take alone is learnt in the first run; a barrier begins every run.
    assert [barriers_of_a_run() for _ in range(4)] == [3, 2, 2, 2]
    timings = device.take_timings()
    assert [step for _, step, _, _ in timings] == ["0 whole", "1 small", "2 after"] * 4
    alone = [length for _, _, _, length in timings[:3]]
    assert alone[0] > alone[1] > 0
    for run in range(3, 12, 3):
        (_, _, begin, whole), (_, _, between, small), (_, _, end, _) = timings[run : run + 3]
        assert between - begin == pytest.approx(whole, abs=1)
        assert end - between == pytest.approx(small, abs=1)
        assert small / whole == pytest.approx(alone[1] / alone[0])


def test_counts_of_inputs_and_values_are_checked(device: Any) -> None:
    compiled = device.build_plan(chain(1))
    with pytest.raises(ValueError, match="takes 2 inputs and 4 values, not 1 and 0"):
        compiled.run([1], [])


def test_too_many_workgroups_are_refused(device: Any) -> None:
    compiled = device.build_plan(chain(2))
    inputs = [put(device, floats(64, seed)) for seed in (1, 2)]
    addresses = [address(c) for c in inputs]
    with pytest.raises(ValueError, match=r"step 'add'.*workgroups on axis 0"):
        compiled.run(addresses, [64, 256, 1 << 40, 512])
    (output,) = compiled.run(addresses, chain_values(64))
    assert get(device, output, 64).shape == (64,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": [{"kind": "jump", "label": "x", "barrier": True}]}, "unknown step kind 'jump'"),
        ({"value_count": 1}, "names value"),
        ({"input_count": 0}, "an input is out of range"),
        ({"outputs": []}, "an output is out of range"),
        ({"modules": [b"12345678" * 4]}, "not SPIR-V"),
        ({"modules": [b"123"]}, "4-byte words"),
        ({"kernels": []}, "the kernel is out of range"),
        ({"arena_bytes": "many"}, "chain of 2"),
    ],
)
def test_inconsistent_plans_are_refused(device: Any, change: dict, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        device.build_plan({**chain(2), **change})


def test_arguments_must_fit_the_kernel(device: Any) -> None:
    specification = chain(1)
    specification["steps"][0]["arguments"].append(word(28, 1))
    with pytest.raises(ValueError, match="outside of the kernel's argument_bytes"):
        device.build_plan(specification)
    specification["steps"][0]["arguments"][-1] = word(26, 1)
    with pytest.raises(ValueError, match="not aligned"):
        device.build_plan(specification)


def test_an_impossible_subgroup_size_names_the_kernel(device: Any) -> None:
    specification = chain(1)
    specification["kernels"][0]["subgroup_size"] = 1024
    with pytest.raises(errors.VulkanError, match="'add' asks for subgroups of 1024"):
        device.build_plan(specification)


def test_many_plans_share_the_pools(device: Any) -> None:
    plans = [device.build_plan(chain(1)) for _ in range(300)]
    first, second = floats(64, 1), floats(64, 2)
    inputs = [put(device, first), put(device, second)]
    outputs = [p.run([address(c) for c in inputs], chain_values(64))[0] for p in plans]
    for output in outputs:
        assert np.allclose(get(device, output, 64), first + second)
    assert allocate(device, 1) is not None

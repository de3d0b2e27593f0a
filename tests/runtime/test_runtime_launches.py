"""Short plans: their kernels are gathered with transfers and submitted together."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from device_memory import (
    address,
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

COUNT = 300


def submissions(device: Any) -> int:
    return device.counters()["submissions"]


@pytest.fixture
def add(device: Any) -> Any:
    """A plan of one kernel: the sum of two arrays of COUNT elements."""
    return device.build_plan(chain(1))


def run(compiled: Any, *inputs: Any, count: int = COUNT) -> Any:
    (output,) = compiled.run([address(c) for c in inputs], chain_values(count))
    return output


def test_runs_and_transfers_that_nobody_waits_for_share_a_submission(device: Any, add: Any) -> None:
    before = submissions(device)
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    total = run(add, first, second)
    device.copy(address(first), address(total), 4 * COUNT)
    result = run(add, total, first)
    assert np.allclose(get(device, result, COUNT), 2 * (floats(COUNT, 1) + floats(COUNT, 2)))
    assert submissions(device) - before == 1


def test_counters_submit_what_is_pending(device: Any, add: Any) -> None:
    inputs = [put(device, floats(COUNT, seed)) for seed in (1, 2)]
    before = device.counters()
    output = run(add, *inputs)
    after = device.counters()
    assert after["dispatches"] - before["dispatches"] == 1
    assert after["submissions"] - before["submissions"] == 1
    del output


def test_a_query_submits_what_is_pending(device: Any, add: Any) -> None:
    inputs = [put(device, floats(COUNT, seed)) for seed in (1, 2)]
    device.synchronize()
    output = run(add, *inputs)
    while not device.query():
        pass
    assert np.allclose(get(device, output, COUNT), floats(COUNT, 1) + floats(COUNT, 2))


def test_work_does_not_wait_for_a_waiter_for_ever(device: Any, add: Any) -> None:
    inputs = [put(device, floats(COUNT, seed)) for seed in (1, 2)]
    device.synchronize()
    before = submissions(device)
    outputs = [run(add, *inputs) for _ in range(33)]
    # The counters submit a rest; 33 kernels are more than one submission holds.
    assert submissions(device) - before >= 2
    del outputs


def test_much_work_is_submitted_at_once(device: Any) -> None:
    count = 1 << 20
    compiled = device.build_plan(chain(1))
    inputs = [put(device, floats(count, seed)) for seed in (1, 2)]
    device.synchronize()
    before = submissions(device)
    output = run(compiled, *inputs, count=count)
    run(compiled, *inputs, count=count)
    assert submissions(device) - before == 2
    assert np.allclose(get(device, output, count), floats(count, 1) + floats(count, 2))


def test_a_busy_device_gets_large_work_gathered(device: Any) -> None:
    count, runs = 4_000_000, 20
    compiled = device.build_plan(chain(1))
    inputs = [put(device, floats(count, seed)) for seed in (1, 2)]
    device.synchronize()
    before = submissions(device)
    for _ in range(runs):
        output = run(compiled, *inputs, count=count)
    # Two make the device busy; sixteen of the others share one at most.
    assert 4 <= submissions(device) - before < runs
    assert np.allclose(get(device, output, count), floats(count, 1) + floats(count, 2))


def test_a_recorded_plan_follows_what_is_pending(device: Any, add: Any) -> None:
    recorded = device.build_plan(chain(20))
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    before = submissions(device)
    total = run(add, first, second)
    result = run(recorded, total, second)
    assert submissions(device) - before == 1
    expected = chain_result(floats(COUNT, 1) + floats(COUNT, 2), floats(COUNT, 2), 20)
    assert np.allclose(get(device, result, COUNT), expected)


def test_a_freed_block_serves_the_next_run_of_the_same_submission(device: Any, add: Any) -> None:
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    current = run(add, first, second)
    places = set()
    for _ in range(20):
        following = run(add, current, second)
        places.add(address(following))
        del current
        current = following
    assert len(places) == 2  # the two blocks take turns
    assert np.allclose(
        get(device, current, COUNT), floats(COUNT, 1) + 21 * floats(COUNT, 2), rtol=1e-4
    )


def test_a_block_written_by_a_transfer_after_a_run_read_it(device: Any, add: Any) -> None:
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    total = run(add, first, second)
    device.fill(address(first), 4 * COUNT, np.float32(7).tobytes())
    replacement = floats(COUNT, 3)
    device.upload(address(second), replacement.ctypes.data, replacement.nbytes)
    later = run(add, first, second)
    assert np.allclose(get(device, total, COUNT), floats(COUNT, 1) + floats(COUNT, 2))
    assert np.allclose(get(device, later, COUNT), 7 + floats(COUNT, 3))


def test_more_runs_than_there_are_slots_for_arguments(device: Any) -> None:
    steps = device.build_plan(chain(3))
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    outputs = [run(steps, first, second) for _ in range(700)]
    expected = chain_result(floats(COUNT, 1), floats(COUNT, 2), 3)
    for output in outputs[::50] + outputs[-1:]:
        assert np.allclose(get(device, output, COUNT), expected)


def test_the_longest_plan_that_is_launched_and_the_shortest_that_is_not(device: Any) -> None:
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    recordings = []
    for length in (8, 9):
        compiled = device.build_plan(chain(length))
        before = device.counters()["recordings"]
        output = run(compiled, first, second)
        recordings.append(device.counters()["recordings"] - before)
        expected = chain_result(floats(COUNT, 1), floats(COUNT, 2), length)
        assert np.allclose(get(device, output, COUNT), expected), f"{length} kernels"
    assert recordings == [0, 1]


def test_a_plan_whose_arguments_do_not_fit_a_slot_is_recorded(device: Any) -> None:
    arguments = [
        pointer(0, ("input", 0)),
        pointer(8, ("output", 0)),
        word(16, float_bits(2.0), "f32"),
        word(20, COUNT),
    ]
    output = {"nbytes": 4 * COUNT, "shape": [COUNT], "strides": [1], "dl_code": 2, "dl_bits": 32}
    spec = plan("wide", [dispatch("scale", 5, arguments)], input_count=1, outputs=[output])
    for kernel in spec["kernels"]:
        kernel["argument_bytes"] = 272
    compiled = device.build_plan(spec)
    before = device.counters()["recordings"]
    source = put(device, floats(COUNT, 1))
    (result,) = compiled.run([address(source)], [])
    assert np.allclose(get(device, result, COUNT), 2 * floats(COUNT, 1) + 1)
    assert device.counters()["recordings"] - before == 1


def test_a_plan_may_be_dropped_before_it_is_submitted(device: Any) -> None:
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    outputs = []
    for _ in range(40):
        compiled = device.build_plan(chain(2))
        outputs.append(run(compiled, first, second))
        del compiled
    for output in outputs:
        assert np.allclose(
            get(device, output, COUNT), chain_result(floats(COUNT, 1), floats(COUNT, 2), 2)
        )


def test_a_failed_assertion_among_other_runs(device: Any, add: Any) -> None:
    assertion = device.register_assert("index {0} among other runs")
    arguments = [
        pointer(0, ("input", 0)),
        pointer(8, ("errors",)),
        word(16, 4),
        word(20, assertion),
        word(24, 10, "i32"),
    ]
    check = device.build_plan(plan("check", [dispatch("check", 1, arguments)], input_count=1))
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    bad = put(device, np.array([1, 2, 30, 4], np.int32))
    run(add, first, second)
    check.run([address(bad)], [])
    output = run(add, first, second)
    with pytest.raises(errors.DeviceAssertError, match="index 30 among other runs"):
        device.synchronize()
    assert np.allclose(get(device, output, COUNT), floats(COUNT, 1) + floats(COUNT, 2))


def test_a_refused_run_leaves_what_is_pending_alone(device: Any) -> None:
    compiled = device.build_plan(chain(1))
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    output = run(compiled, first, second)
    values = chain_values(COUNT)
    values[2] = 1 << 40  # workgroups
    with pytest.raises(ValueError, match="workgroups on axis 0"):
        compiled.run([address(first), address(second)], values)
    later = run(compiled, output, second)
    assert np.allclose(get(device, later, COUNT), floats(COUNT, 1) + 2 * floats(COUNT, 2))


def test_threads_launch_side_by_side(device: Any) -> None:
    shared = device.build_plan(chain(2))
    failures: list[str] = []

    def work(seed: int) -> None:
        first, second = put(device, floats(COUNT, seed)), put(device, floats(COUNT, seed + 50))
        outputs = [run(shared, first, second) for _ in range(150)]
        expected = chain_result(floats(COUNT, seed), floats(COUNT, seed + 50), 2)
        failures.extend(
            f"thread {seed}"
            for o in outputs[::10]
            if not np.allclose(get(device, o, COUNT), expected)
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_profiled_runs_are_timed_one_by_one(device: Any, add: Any) -> None:
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    before = run(add, first, second)
    device.take_timings()
    device.set_profiling(True)
    try:
        outputs = [run(add, first, second) for _ in range(5)]
        assert len(device.take_timings()) == 5
    finally:
        device.set_profiling(False)
    outputs += [before, run(add, first, second)]
    assert device.take_timings() == []
    for output in outputs:
        assert np.allclose(get(device, output, COUNT), floats(COUNT, 1) + floats(COUNT, 2))


def test_profiled_runs_are_gathered_like_others(device: Any, add: Any) -> None:
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    device.set_profiling(True)
    try:
        before = submissions(device)
        outputs = [run(add, first, second) for _ in range(5)]
        assert np.allclose(get(device, outputs[-1], COUNT), floats(COUNT, 1) + floats(COUNT, 2))
        assert submissions(device) - before == 1
    finally:
        device.set_profiling(False)
    assert len(device.take_timings()) == 5


def test_more_runs_are_timed_than_there_is_room_for(device: Any) -> None:
    compiled = device.build_plan(chain(3))
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    device.set_profiling(True)
    try:
        for _ in range(1500):  # with four timestamps each
            run(compiled, first, second)
    finally:
        device.set_profiling(False)
    timings = device.take_timings()
    starts = [start for _, _, start, _ in timings]
    assert len(timings) == 1500 * 3
    assert starts == sorted(starts)
    assert [step for _, step, _, _ in timings[:3]] * 1500 == [step for _, step, _, _ in timings]


def test_pending_work_is_done_before_memory_goes_back_to_the_driver(device: Any, add: Any) -> None:
    first, second = put(device, floats(COUNT, 1)), put(device, floats(COUNT, 2))
    large = device.empty((1 << 25,), (1,), 1, 8, 1 << 25)
    device.fill(address(large), 1 << 20, b"\1")
    del large
    output = run(add, first, second)
    device.empty_cache()
    assert np.allclose(get(device, output, COUNT), floats(COUNT, 1) + floats(COUNT, 2))


def test_a_process_may_end_with_work_pending(run_script: Any) -> None:
    run_script(
        """
import numpy as np
from device_memory import *
device = runtime.device(0)
compiled = device.build_plan(chain(1))
inputs = [put(device, np.ones(100, np.float32)) for _ in range(2)]
kept = compiled.run([address(c) for c in inputs], chain_values(100))
runtime.shutdown()
""",
        TORCHVK_VALIDATION="1",
    )

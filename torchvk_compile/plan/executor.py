"""Running a `GraphPlan`: shaders, pipelines, argument values, one submission per call.

In: a plan, torch tensors on a vk device and the values of its symbols. Out: torch tensors.
Forbidden: changing the plan, waiting for the device.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import logging
import math
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchvk_compile import shaders
from torchvk_compile.audit import events
from torchvk_compile.errors import DeviceLostError
from torchvk_compile.log import logger
from torchvk_compile.plan.graph_plan import (
    ArenaBuffer,
    Dispatch,
    GraphPlan,
    KernelSpec,
    OutputBuffer,
    Size,
    evaluator,
)
from torchvk_compile.plan.hazards import barriers
from torchvk_compile.plan.memory import plan_arena
from torchvk_compile.profiling import spans

if TYPE_CHECKING:
    from torchvk_compile._runtime import ExecutableReport

ALIGNED_LINE = "static const bool ALIGNED = true;"
"""The line of a Slang module that promises 16-byte aligned inputs; see `CompiledPlan`."""
UNALIGNED_LINE = "static const bool ALIGNED = false;"

_ALIGNMENT_MASK = 15
_ERRORS = "errors"
_SHOWN_LINES = 3

Scalar = int | tuple[str, int]

_run_log = logging.getLogger("torchvk.plans")
"""Its level is set where plans are made, so that a call of one costs a comparison."""


_serial_numbers = itertools.count()
_loaded: weakref.WeakSet[CompiledPlan] = weakref.WeakSet()


_recent: collections.deque[GraphPlan] = collections.deque(maxlen=3)
"""The plans submitted last: if the device is lost, it was at work on one of them."""

note_launch = _recent.append
"""To be called with the `GraphPlan` of a plan that is run without `CompiledPlan`."""


def recent_work() -> str:
    """The plans submitted last, newest first, in words; empty if there were none."""
    described = []
    for plan in reversed(_recent):
        kernels = ", ".join(dict.fromkeys(step.kernel for step in plan.steps[:_SHOWN_LINES]))
        more = ", …" if len(plan.steps) > _SHOWN_LINES else ""
        place = _asked_for_at(plan, *plan.steps)
        described.append(f"{plan.name} ({kernels}{more}{place})")
    return "; ".join(described)


DeviceLostError.recent_work = staticmethod(recent_work)


def loaded_plans() -> list[CompiledPlan]:
    """The plans alive in this process, for inspection."""
    return sorted(_loaded, key=lambda compiled: compiled.plan.name)


class CompiledPlan:
    """A plan bound to one device, ready to run.

    Kernels are compiled for inputs that start at multiples of 16 bytes. Should a call bring another one (a
    view with an odd storage offset), a second set of pipelines without that promise is made and used for
    such calls; results are the same.

    Args:
        plan: what to run.
        device_index: of the vk device.

    Attributes:
        shader_digest: SHA-256 of the module's SPIR-V, in hexadecimal.
        runtime_name: what the runtime's timings call it; no other plan of the process has it.

    Raises:
        ShaderCompileError: when the Slang compiler rejects the module.
        VulkanError: when the driver rejects a pipeline.
    """

    def __init__(self, plan: GraphPlan, device_index: int) -> None:
        from torchvk_compile.device import runtime_device, tensor_from_capsule

        self.plan = plan
        self.device_index = device_index
        self._device = runtime_device(device_index)
        self._tensor_from_capsule = tensor_from_capsule
        self._slots = _Slots(plan)
        self.shader_digest = ""
        self.runtime_name = f"{plan.name}.{next(_serial_numbers)}"
        self._aligned = self._build(plan.slang)
        self._unaligned: Any = None
        self._bind = functools.lru_cache(maxsize=64)(self._slots.bind)
        self._static_values = self._slots.bind(()) if not plan.symbols else None
        self._encoders = self._slots.encoders
        _loaded.add(self)
        self._log()

    @staticmethod
    def load(slang: str, plan: str, device_index: int) -> CompiledPlan:
        """Rebuild from the texts that code generation wrote into the graph's wrapper."""
        return CompiledPlan(GraphPlan.from_json(plan, slang), device_index)

    def __call__(
        self,
        tensors: Sequence[torch.Tensor],
        symbols: tuple[int, ...] = (),
        scalars: Sequence[torch.Tensor | int | float] = (),
    ) -> list[torch.Tensor]:
        """Submit the plan.

        Args:
            tensors: the inputs, in the order of `GraphPlan.inputs`, with the strides the plan was made for.
            symbols: values of `GraphPlan.symbols`.
            scalars: values of `GraphPlan.scalars`.

        Returns:
            One tensor per `GraphPlan.outputs`. The call returns once the work is submitted.
        """
        addresses = [tensor.data_ptr() for tensor in tensors]
        runtime_plan = self._aligned
        for address in addresses:
            if address & _ALIGNMENT_MASK:
                runtime_plan = self._unaligned_plan()
                break
        values = self.values(symbols, scalars)
        _recent.append(self.plan)
        if events.listeners:
            events.plan_ran(self)
        if _run_log.isEnabledFor(logging.DEBUG):
            _run_log.debug("%s runs", self.plan.name)
        if spans.watchers:
            with spans.plan_span(self, symbols):
                capsules = runtime_plan.run(addresses, values)
        else:
            capsules = runtime_plan.run(addresses, values)
        return [self._tensor_from_capsule(capsule) for capsule in capsules]

    def values(
        self, symbols: tuple[int, ...], scalars: Sequence[torch.Tensor | int | float]
    ) -> list[int]:
        """What the runtime's plan is given besides addresses; arguments as those of a call."""
        values = self._static_values if self._static_values is not None else self._bind(symbols)
        if scalars:
            values = values + [encode(s) for encode, s in zip(self._encoders, scalars, strict=True)]
        return values

    @property
    def runtime_plan(self) -> Any:
        """The `_runtime.Plan` for inputs that start at multiples of 16 bytes."""
        return self._aligned

    def _log(self) -> None:
        plan = self.plan
        memory = "sizes vary" if plan.symbols else f"{self._slots.arena_bytes()} bytes of arena"
        logger("plans").info(
            "%s: %d kernels, %d dispatches, %s",
            *(plan.name, len(plan.kernels), len(plan.steps), memory),
        )
        fusion = logger("fusion")
        if fusion.isEnabledFor(logging.INFO):
            for step in plan.steps:
                operators = dict.fromkeys(origin.op for origin in plan.origins_of(step))
                computes = f"{' + '.join(operators)}{_asked_for_at(plan, step)}"
                fusion.info("%s in %s computes %s", step.kernel, plan.name, computes)

    def _unaligned_plan(self) -> Any:
        if self._unaligned is None:
            self._unaligned = self._build(self.plan.slang.replace(ALIGNED_LINE, UNALIGNED_LINE))
        return self._unaligned

    def _build(self, slang: str) -> Any:
        with spans.span("compile", "Slang", plan=self):
            spirv = self._spirv(slang)
        if not self.shader_digest:
            self.shader_digest = hashlib.sha256(spirv).hexdigest()
        spec = _runtime_spec(
            self.plan, self._slots, spirv, self._device.register_assert, self.runtime_name
        )
        with spans.span("compile", "pipelines", plan=self):
            return self._device.build_plan(spec)

    def _spirv(self, slang: str) -> bytes:
        names = [kernel.name for kernel in self.plan.kernels]
        controls = shaders.FloatControls.of(self._device.profile)
        return shaders.compile_module(slang, names, name=self.plan.name, float_controls=controls)

    def spirv(self) -> bytes:
        """The module's SPIR-V, from the cache or compiled anew."""
        return self._spirv(self.plan.slang)

    def barriers(self) -> list[bool]:
        """For every step, whether it waits for the steps before it."""
        return barriers(self.plan.steps, _memory_sharing(self.plan, self._slots))

    def output_bytes(self, symbols: tuple[int, ...]) -> list[int]:
        """Sizes of the outputs where `GraphPlan.symbols` have these values."""
        number = self.plan.sizes_at(symbols)
        return [_output_bytes(output, number) for output in self.plan.outputs]

    def pipeline_statistics(self) -> dict[str, ExecutableReport]:
        """What the driver made of every kernel: its first executable as the runtime describes it, by kernel name.

        Raises:
            VulkanError: when the driver does not report pipeline executables.
        """
        spirv = self.spirv()
        return {
            kernel.name: self._device.pipeline_statistics(spirv, kernel.name, kernel.subgroup_size)[
                0
            ]
            for kernel in self.plan.kernels
        }


@dataclasses.dataclass(frozen=True)
class SolePlan:
    """What a compiled graph comes down to that does nothing but call one plan.

    Attributes:
        plan: the plan.
        inputs: for every input of the plan, which of the graph's inputs it is.
        symbols: for every symbol of the plan, the graph's input and the dimension whose extent it is.
        scalars: for every host scalar of the plan, which of the graph's inputs it is.
        outputs: for every result of the graph, which of the plan's outputs it is.
    """

    plan: CompiledPlan
    inputs: tuple[int, ...]
    symbols: tuple[tuple[int, int], ...]
    scalars: tuple[int, ...]
    outputs: tuple[int, ...]


class _Slots:
    """Where the values that are known only when the plan runs sit in the runtime's value list.

    The list holds, in this order: every size expression, the bytes of every output, the offset of every
    intermediate, the arena's size, and the host scalars. A plan without symbols has all but the last as
    constants.
    """

    def __init__(self, plan: GraphPlan) -> None:
        self.plan = plan
        self.static = not plan.symbols
        self._expressions = {text: i for i, text in enumerate(plan.expressions())}
        self._evaluate = evaluator(plan.symbols, plan.expressions())
        self._outputs_at = len(self._expressions)
        self._arena_at = self._outputs_at + len(plan.outputs)
        self._scalars_at = 0 if self.static else self._arena_at + len(plan.arena) + 1
        self.value_count = self._scalars_at + len(plan.scalars)
        self.encoders = [_scalar_encoder(_scalar_kind(plan, s.name)) for s in plan.scalars]
        if self.static:
            layout = self._layout(())
            self._constants = layout

    def bind(self, symbols: tuple[int, ...]) -> list[int]:
        """The value list for these symbols, without the host scalars."""
        return [] if self.static else self._layout(symbols)

    def size(self, size: Size) -> Scalar:
        if isinstance(size, int):
            return size
        return self._at(self._expressions[size])

    def output_bytes(self, index: int) -> Scalar:
        return self._at(self._outputs_at + index)

    def arena_offset(self, index: int) -> Scalar:
        return self._at(self._arena_at + index)

    def arena_bytes(self) -> Scalar:
        return self._at(self._arena_at + len(self.plan.arena))

    def scalar(self, name: str) -> Scalar:
        names = [s.name for s in self.plan.scalars]
        return ("value", self._scalars_at + names.index(name))

    def _at(self, index: int) -> Scalar:
        return self._constants[index] if self.static else ("value", index)

    def _layout(self, symbols: tuple[int, ...]) -> list[int]:
        values = [int(v) for v in self._evaluate(*symbols)]

        def known(size: Size) -> int:
            return size if isinstance(size, int) else values[self._expressions[size]]

        outputs = [_output_bytes(output, known) for output in self.plan.outputs]
        offsets, total = plan_arena(
            [known(buffer.nbytes) for buffer in self.plan.arena],
            [(buffer.first, buffer.last) for buffer in self.plan.arena],
        )
        return values + outputs + offsets + [total]


def _runtime_spec(
    plan: GraphPlan,
    slots: _Slots,
    spirv: bytes,
    register_assert: Callable[[str], int],
    name: str,
) -> dict[str, Any]:
    """The plan in the form `_runtime.Device.build_plan` takes."""
    buffers: dict[str, tuple[Any, ...]] = {_ERRORS: ("errors",)}
    buffers |= {name: ("input", i) for i, name in enumerate(plan.inputs)}
    buffers |= {output.name: ("output", i) for i, output in enumerate(plan.outputs)}
    buffers |= {
        buffer.name: ("arena", slots.arena_offset(i)) for i, buffer in enumerate(plan.arena)
    }
    kernels = {kernel.name: (i, kernel) for i, kernel in enumerate(plan.kernels)}
    flags = barriers(plan.steps, _memory_sharing(plan, slots))
    if "hazard_barriers" in plan.without:
        flags = [index > 0 for index in range(len(plan.steps))]

    def arguments(kernel: KernelSpec, step: Dispatch) -> list[dict[str, Any]]:
        bound = zip(kernel.arguments, kernel.argument_offsets(), step.operands, strict=True)
        result: list[dict[str, Any]] = []
        for argument, at, operand in bound:
            if operand.buffer is not None:
                offset = slots.size(operand.offset)
                result.append(
                    {
                        "kind": "pointer",
                        "at": at,
                        "buffer": buffers[operand.buffer],
                        "offset": offset,
                    }
                )
            elif operand.scalar is not None:
                result.append(
                    {"kind": argument.kind, "at": at, "value": slots.scalar(operand.scalar)}
                )
            elif operand.assertion is not None:
                place = f"in kernel {kernel.name}{_asked_for_at(plan, step)}"
                code = register_assert(f"{operand.assertion}, {place}")
                result.append({"kind": argument.kind, "at": at, "value": code})
            else:
                assert operand.value is not None, (kernel.name, argument.name)
                result.append({"kind": argument.kind, "at": at, "value": slots.size(operand.value)})
        return result

    steps = []
    for position, (step, barrier) in enumerate(zip(plan.steps, flags, strict=True)):
        index, kernel = kernels[step.kernel]
        steps.append(
            {
                "kind": "dispatch",
                "kernel": index,
                "label": step_label(position, kernel.name),
                "groups": [slots.size(g) for g in step.groups],
                "barrier": barrier,
                "arguments": arguments(kernel, step),
            }
        )
    return {
        "name": name,
        "input_count": len(plan.inputs),
        "value_count": slots.value_count,
        "arena_bytes": slots.arena_bytes(),
        "outputs": [_output_spec(output, i, slots) for i, output in enumerate(plan.outputs)],
        "modules": [spirv],
        "kernels": [
            {
                "module": 0,
                "entry": kernel.name,
                "subgroup_size": kernel.subgroup_size,
                "full_subgroups": kernel.subgroup_size > 0,
                "argument_bytes": kernel.argument_bytes,
            }
            for kernel in plan.kernels
        ],
        "steps": steps,
        "replay": "replay" not in plan.without,
        "argument_table": "argument_table" not in plan.without,
    }


def _asked_for_at(plan: GraphPlan, *steps: Dispatch) -> str:
    """The lines of the user's program that dispatches compute, for a message about them."""
    origins = [origin for step in steps for origin in plan.origins_of(step)]
    distinct = list(dict.fromkeys(str(origin.frames[0]) for origin in origins if origin.frames))
    return f", asked for at {', '.join(distinct[:_SHOWN_LINES])}" if distinct else ""


def step_label(position: int, kernel: str) -> str:
    """What the runtime's timings and errors call a step."""
    return f"{position} {kernel}"


def _output_spec(output: OutputBuffer, index: int, slots: _Slots) -> dict[str, Any]:
    code, bits = dlpack_type(output.dtype)
    return {
        "nbytes": slots.output_bytes(index),
        "shape": [slots.size(s) for s in output.shape],
        "strides": [slots.size(s) for s in output.strides],
        "dl_code": code,
        "dl_bits": bits,
    }


def _memory_sharing(plan: GraphPlan, slots: _Slots) -> Callable[[str, str], bool]:
    """Whether two intermediates may lie on the same bytes of the arena."""
    arena: dict[str, tuple[int, ArenaBuffer]] = {b.name: (i, b) for i, b in enumerate(plan.arena)}

    def shares(one: str, other: str) -> bool:
        if one == other or one not in arena or other not in arena:
            return False
        i, a = arena[one]
        j, b = arena[other]
        begin, end = slots.arena_offset(i), slots.arena_offset(j)
        if isinstance(begin, int) and isinstance(end, int):
            assert isinstance(a.nbytes, int) and isinstance(b.nbytes, int)
            return begin < end + b.nbytes and end < begin + a.nbytes
        # Offsets follow from the sizes of each call: buffers with disjoint lifetimes may share bytes.
        return a.last < b.first or b.last < a.first

    return shares


def _output_bytes(output: OutputBuffer, known: Callable[[Size], int]) -> int:
    shape = [known(s) for s in output.shape]
    if 0 in shape:
        return 0
    extent = 1 + sum(
        (n - 1) * known(stride) for n, stride in zip(shape, output.strides, strict=True)
    )
    return extent * getattr(torch, output.dtype).itemsize


def _scalar_kind(plan: GraphPlan, name: str) -> str:
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    for step in plan.steps:
        for argument, operand in zip(kernels[step.kernel].arguments, step.operands, strict=True):
            if operand.scalar == name:
                return argument.kind
    raise ValueError(f"plan {plan.name}: host scalar {name} is used by no kernel")


def _scalar_encoder(kind: str) -> Callable[[Any], int]:
    if kind == "f32":
        return lambda value: _bits("<f", "<I", value)
    if kind == "f64":
        return lambda value: _bits("<d", "<q", value)
    return _whole


def _bits(number: str, whole: str, value: Any) -> int:
    value = float(value)
    try:
        packed = struct.pack(number, value)
    except OverflowError:  # beyond float32: rounds to infinity, as a cast does
        packed = struct.pack(number, math.copysign(math.inf, value))
    return struct.unpack(whole, packed)[0]


def _whole(value: Any) -> int:
    return int(value)


@functools.cache
def dlpack_type(dtype: str) -> tuple[int, int]:
    """DLPack's type code and bits for a torch dtype name (codes: dlpack.h, DLDataTypeCode)."""
    torch_dtype = getattr(torch, dtype)
    bits = torch_dtype.itemsize * 8
    if torch_dtype is torch.bool:
        return 6, bits
    if torch_dtype is torch.bfloat16:
        return 4, bits
    if torch_dtype.is_complex:
        return 5, bits
    if torch_dtype.is_floating_point:
        return 2, bits
    return (0 if torch_dtype.is_signed else 1), bits

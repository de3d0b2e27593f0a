"""The one place that touches torch internals which differ between torch versions.

In: TorchVK's own classes and settings. Out: registrations and calls in the form the installed torch understands.
Forbidden: replacing torch functions, changing global torch configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import os
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchvk_compile import config as torchvk_config

OLDEST_SUPPORTED = (2, 11)


def check_torch_version() -> None:
    """Refuse torch releases whose internals are known not to fit.

    Raises:
        ImportError: naming the installed and the needed version.
    """
    version = _torch_version()
    if version < OLDEST_SUPPORTED:
        needed = ".".join(map(str, OLDEST_SUPPORTED))
        raise ImportError(f"TorchVK needs torch >= {needed}; installed is {torch.__version__}")


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def rounds_float32_products() -> bool:
    """Whether `torch.set_float32_matmul_precision` lets float32 products be made of rounded factors.

    So does ``torch.backends.cuda.matmul.fp32_precision``; where it was set, torch's getter of the former raises. The
    latter's takes ten times as long, and every eager call asks.
    """
    try:
        return torch._C._get_cublas_allow_tf32()
    except RuntimeError:
        return torch._C._get_fp32_precision_getter("cuda", "matmul") in ("tf32", "bf16")


def inductor_cache_directory() -> Path:
    """Where Inductor keeps compiled graphs; the directory need not exist."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    return Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default_cache_dir()).absolute()


def inductor_module_name(source: bytes) -> str:
    """The name, without ``.py``, under which Inductor keeps a generated module."""
    from torch._inductor.codecache import code_hash

    return code_hash(source.strip())


def inductor_settings() -> dict[str, Any]:
    """Inductor options under which graphs for vk devices are compiled; in force only around those compilations."""
    wanted: dict[str, Any] = {
        # Plans place buffers themselves, over the whole graph.
        "allow_buffer_reuse": False,
        "memory_planning": False,
        # One flat row of iterations per kernel; SlangKernel finds the vectors in it.
        "triton.max_tiles": 1,
        "triton.coalesce_tiling_analysis": False,
        "triton.tile_reductions": False,
        "triton.prefer_nd_tiling": False,
        "triton.cooperative_reductions": False,
        "triton.persistent_reductions": True,
        "triton.mix_order_reduction": False,
        "triton.multi_kernel": 0,
        "triton.native_matmul": False,
        "triton.autotune_at_compile_time": False,
        "benchmark_harness": False,
        "benchmark_kernel": False,
        "combo_kernels": False,
        "cpp_wrapper": False,
        "fx_wrapper": False,
        "graph_partition": False,
        "freezing": False,
        "layout_optimization": False,
        "comprehensive_padding": False,
        "alignment_asserts": False,
        # Folding would compile, run and read back operators on the device, for constants that are inlined anyway.
        "joint_graph_constant_folding": False,
        # Slang is compiled in this process.
        "compile_threads": 1,
    }
    if "fusion" in torchvk_config.without:
        # Every operator's result is stored, and no two nodes share a kernel.
        wanted |= {
            "max_fusion_size": 1,
            "epilogue_fusion": False,
            "realize_opcount_threshold": 0,
            "realize_reads_threshold": 0,
            "realize_acc_reads_threshold": 0,
        }
    return {name: value for name, value in wanted.items() if _has_setting(name)}


def control_flow_settings(gm: torch.fx.GraphModule) -> contextlib.AbstractContextManager[Any]:
    """Context for lowering a graph that may hold branches or loops.

    A branch or a loop body takes the tensors of the graph around it for its own and writes its results into them,
    also where that graph reads them afterwards (seen in torch 2.13, on every device).
    """
    inner = any(isinstance(child, torch.fx.GraphModule) for child in gm.children())
    return patched_settings()(inplace_buffers=False) if inner else contextlib.nullcontext()


def _has_setting(name: str) -> bool:
    from torch._inductor import config

    try:
        operator.attrgetter(name)(config)
    except AttributeError:
        return False
    return True


def register_inductor_backend(
    device: str, scheduling: type, wrapper: type, interface: type, graph_pass: Any
) -> None:
    """Make Inductor generate code for a device type.

    Args:
        device: type name, such as ``"vk"``.
        scheduling: class of the scheduling.
        wrapper: class of the wrapper code generator.
        interface: subclass of torch's `DeviceInterface`.
        graph_pass: `CustomGraphModulePass` run on every graph for the device; its uuid is part of the FX cache key.
    """
    from torch._dynamo.device_interface import register_interface_for_device
    from torch._inductor.codegen.common import (
        DeviceOpOverrides,
        get_device_op_overrides,
        register_backend_for_device,
        register_device_op_overrides,
    )

    register_interface_for_device(device, interface)
    # torch registers its own devices on the first request, and only while nobody else is registered.
    get_device_op_overrides("cpu")
    register_device_op_overrides(device, DeviceOpOverrides())
    register_backend_for_device(device, scheduling, wrapper, device_custom_pass=graph_pass)


def input_check_lines() -> tuple[type, ...]:
    """Classes of wrapper lines that check a graph input's size and strides; torch 2.11 writes plain text instead."""
    from torch._inductor.codegen import wrapper

    line = getattr(wrapper, "AssertSizeStrideLine", None)
    return () if line is None else (line,)


def searches_follow_views() -> bool:
    """Whether Inductor's binary searches know where in its buffer a table begins; torch 2.11 does not look."""
    from torch._inductor import lowering

    return hasattr(lowering, "_bucketize_indices")


def joint_passes_round() -> bool:
    """Whether Inductor's joint passes keep a conversion to 16 bits and back; torch 2.11 takes both for nothing."""
    from torch._inductor.fx_passes import joint_graph

    return hasattr(joint_graph, "_is_lossless_fp_widening_cast")


def complete_operators() -> None:
    """Tell torch what a release does not know about operators of its own, as later releases do.

    In torch 2.11 graphs lose the check that raises `LinAlgError`, since it has no results, and `_unique`, which the
    gradient of `index_fill` calls, has no shape. No release up to 2.13 knows the shape of `binomial`.
    """
    from torch._higher_order_ops import effects
    from torch._library import simple_registry

    check = simple_registry.singleton.find("aten::_linalg_check_errors").effect
    if check.effect is None:
        check.register(effects._EffectType.ORDERED)
    if _torch_version() == (2, 11):
        torch.library.register_fake("aten::_unique", _shape_of_unique)
    if not torch._C._dispatch_has_kernel_for_dispatch_key("aten::binomial", "Meta"):
        torch.library.register_fake("aten::binomial", _shape_of_binomial)


def keep_gradients(functions: Mapping[Any, Callable[..., Any]]) -> None:
    """Have operators on vk tensors in graphs computed by these functions, whose gradients are then theirs.

    Torch takes the operators apart before autograd sees them, on all devices.
    """
    for op, function in functions.items():
        op.py_impl(torch._C.DispatchKey.AutogradPrivateUse1)(function)


def with_own_gradient(op: Any) -> Callable[..., Any]:
    """The operator, as a function whose gradient is ATen's operator for it."""
    return functools.partial(op._op_dk, torch._C.DispatchKey.Autograd)


def _shape_of_binomial(
    count: torch.Tensor, prob: torch.Tensor, generator: torch.Generator | None = None
) -> torch.Tensor:
    return torch.empty_like(torch.broadcast_tensors(count, prob)[0])


def _shape_of_unique(
    x: torch.Tensor, sorted: bool = True, return_inverse: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    values, inverse, _ = torch.ops.aten._unique2(x, sorted, return_inverse)
    return values, inverse


def keep_dynamo_out(*modules: str) -> None:
    """Have Dynamo run the functions of these modules as they are, instead of tracing into them.

    Dynamo meets them when a graph break calls an eager operator, whose kernel is Python here.
    """
    from torch._dynamo import trace_rules

    for module in modules:
        trace_rules.add(module)


def run_without_dynamo(*functions: Any) -> None:
    """Have Dynamo leave alone what these functions call, on all levels, at no cost for each call.

    Code that is kept out by its module still lets Dynamo see what it calls: generated modules among it.
    """
    from torch._C._dynamo.eval_frame import (
        _FrameAction,
        _FrameExecStrategy,
        set_code_exec_strategy,
    )

    strategy = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for function in functions:
        set_code_exec_strategy(function.__code__, strategy)


def compile_with_autograd(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    inner_compile: Callable[..., Any],
    settings: dict[str, Any],
) -> Callable[..., Any]:
    """AOTAutograd and Inductor over a Dynamo graph, with `inner_compile` for forward and backward."""
    from torch._functorch import config as functorch_config
    from torch._inductor.compile_fx import compile_fx

    cached = functorch_config.enable_autograd_cache and _autograd_cache_is_sound(example_inputs)
    _allow_sizes_from_data(fake_mode_of(example_inputs))
    with functorch_config.patch(enable_autograd_cache=cached):
        return compile_fx(
            gm,
            example_inputs,
            inner_compile=inner_compile,
            config_patches=settings,
            decompositions=decompositions(),
        )


def depends_on_data(error: BaseException) -> bool:
    """Whether torch could not trace an operator because its result's shape, or a branch, depends on the data."""
    from torch._subclasses import fake_tensor

    kinds = (fake_tensor.DynamicOutputShapeException, fake_tensor.DataDependentOutputException)
    return isinstance(error, kinds)


class _Decompositions(dict[Any, Callable[..., Any]]):
    """A table that Inductor's cache key knows by the function that makes it.

    Its entries cannot all be pickled, and graphs whose key cannot be made are not cached. What the table holds
    follows from torch's version and TorchVK's sources, which are part of the key already.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return decompositions, ()


def _allow_sizes_from_data(fake_mode: Any) -> None:
    """Let a graph hold operators whose result's shape depends on the data, as the gradient under a mask is one.

    Dynamo keeps them out of forward graphs by itself, unless the user lets them in. Its shape environment
    belongs to this one graph.
    """
    shape_env = getattr(fake_mode, "shape_env", None)
    if shape_env is not None:
        shape_env.settings = dataclasses.replace(
            shape_env.settings, allow_dynamic_output_shape_ops=True
        )


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Inductor's decompositions, changed where TorchVK does better or Inductor has none.

    Inductor expands `addmm` with one column so that NaN in the bias shows even for ``beta=0``, and takes negative
    indices of `index_add` and `index_copy` from the end.
    """
    from torch._inductor.decomposition import select_decomp_table

    from torchvk_compile.lowering.decompositions import DECOMPOSITIONS
    from torchvk_compile.lowering.graph_check import checked_product
    from torchvk_compile.lowering.memory_formats import KEEPING_FORMAT

    table = _Decompositions(select_decomp_table())
    for name in ("addmm", "index_add", "index_copy"):
        table.pop(getattr(torch.ops.aten, name).default, None)
    table.update(DECOMPOSITIONS)
    table.update(KEEPING_FORMAT)
    for name in ("mv", "dot", "vdot", "addmv", "linalg_cross"):
        op = getattr(torch.ops.aten, name).default
        table[op] = checked_product(op, table[op])
    from torchvk_compile.lowering.complex_table import RULES

    table.update({op: _of_real_tensors(op, table[op]) for op in RULES if op in table})
    return table


@functools.cache
def _of_real_tensors(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves calls with complex numbers whole: they have a rule of their own."""
    from torch.utils._pytree import tree_leaves

    from torchvk_compile.lowering.complex_table import is_complex

    @functools.wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        if any(is_complex(leaf) for leaf in tree_leaves((args, kwargs))):
            return NotImplemented
        return decomposition(*args, **kwargs)

    return decompose


def _autograd_cache_is_sound(example_inputs: Sequence[Any]) -> bool:
    """Whether AOTAutograd's cache may serve a graph for these inputs.

    Its key knows neither the values of Python floats, which end up as constants of the graph, nor which
    inputs share memory (seen in torch 2.11 to 2.13).
    """
    storages = set()
    for value in example_inputs:
        if isinstance(value, (float, torch.SymFloat)):
            return False
        if isinstance(value, torch.Tensor) and not value.is_sparse:
            storage = value.untyped_storage()._cdata
            if storage in storages:
                return False
            storages.add(storage)
    return True


def compile_aten_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
) -> Any:
    """Inductor over a functional ATen graph; returns a callable that takes a list and empties it."""
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V

    with V.set_choices_handler(_choices_class()()):
        return compile_fx_inner(gm, example_inputs, **kwargs)


@functools.cache
def _choices_class() -> Any:
    from torch._inductor.choices import InductorChoices

    from torchvk_compile.codegen import layout
    from torchvk_compile.codegen.device_profile import profile_of

    class Choices(InductorChoices):
        """Inductor's, but for sums over rows, which are split so that a kernel of the rows may take them along."""

        @staticmethod
        def reduction_split_factor(
            device: torch.device,
            reduction_numel_hint: int,
            numel_hint: int,
            inner_reduction: bool,
        ) -> int:
            own = InductorChoices.reduction_split_factor(
                device, reduction_numel_hint, numel_hint, inner_reduction
            )
            if device.type != "vk" or inner_reduction or own == 1:
                return own
            parts = layout.parts_of_sums(profile_of(device.index or 0), reduction_numel_hint)
            return parts if parts > 1 else own

    return Choices


def dynamo_lock() -> threading.RLock:  # type: ignore[valid-type]
    """The lock under which Dynamo compiles; torch 2.13 holds it while it compiles backward graphs, too."""
    from torch._dynamo.convert_frame import compile_lock

    return compile_lock


def traced(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    decomposition_table: dict[Any, Callable[..., Any]],
) -> torch.fx.GraphModule:
    """The ATen graph of a function, as `make_fx` has it, without a change that other threads could see.

    `make_fx` replaces `torch.nn.Module.__call__` and says that the process is tracing, upon which compiled functions
    refuse to be called, on whichever thread.

    Args:
        function: calls operators, no modules.
        inputs: fake tensors and sizes.
        decomposition_table: of the operators to be expanded.
    """
    tracer = _tracer_class()(decomposition_table, "real", False, False, False, False, True)
    return tracer.trace(function, *inputs)


@functools.cache
def _tracer_class() -> Any:
    from torch.fx.experimental.proxy_tensor import _MakefxTracer

    class Tracer(_MakefxTracer):
        def _construct_modes_with_fx_tracer(self, fx_tracer: Any) -> None:
            # Its class has to stay: tracers of subgraphs are made by class.
            fx_tracer.trace = functools.partial(_graph_of, fx_tracer)
            super()._construct_modes_with_fx_tracer(fx_tracer)

    return Tracer


def _graph_of(
    tracer: torch.fx.Tracer, function: Callable[..., Any], concrete_args: Any
) -> torch.fx.Graph:
    """What `Tracer.trace` does for a function, but for its replacements in other modules."""
    tracer.root = torch.nn.Module()
    tracer.graph = torch.fx.Graph(tracer_cls=type(tracer))
    tracer.tensor_attrs = {}
    flat, proxies = tracer.create_args_for_root(function, False, concrete_args)
    tracer.create_node("output", "output", (tracer.create_arg(flat(*proxies)),), {})
    return tracer.graph


class DynamoWatch:
    """Has `begun` and `ended` called around everything Dynamo compiles, from `start` to `stop`."""

    def __init__(self, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        # Kept as attributes: the handler forgets callbacks by identity.
        self._begun, self._ended = (lambda _: begun()), (lambda _: ended())

    def start(self) -> None:
        from torch._dynamo.callback import callback_handler

        callback_handler.register_start_callback(self._begun)
        callback_handler.register_end_callback(self._ended)

    def stop(self) -> None:
        from torch._dynamo.callback import callback_handler

        # `torch._dynamo.reset` in between has forgotten them.
        with contextlib.suppress(ValueError):
            callback_handler.remove_start_callback(self._begun)
        with contextlib.suppress(ValueError):
            callback_handler.remove_end_callback(self._ended)


class AnnotationRecorder:
    """Records `torch.profiler.record_function` of all threads, and nothing else, which costs other code nothing.

    Torch has one profiler at a time. Where the user's own or another recorder is at work, on whichever thread,
    nothing is recorded.
    """

    _one_at_a_time = threading.Lock()

    def __init__(self) -> None:
        self._recording = False

    def start(self) -> None:
        """Begin, unless another profiler is at work."""
        from torch._C import _profiler

        if not self._one_at_a_time.acquire(blocking=False):
            return
        _autograd: Any = torch._C._autograd
        if _autograd._profiler_enabled():
            self._one_at_a_time.release()
            return
        settings = _profiler.ProfilerConfig(
            _profiler.ProfilerState.KINETO,
            False,
            False,
            False,
            False,
            False,
            _profiler._ExperimentalConfig(profile_all_threads=True),
            "",
        )
        activities = {_profiler.ProfilerActivity.CPU}
        _autograd._prepare_profiler(settings, activities)
        _autograd._enable_profiler(settings, activities, {_profiler.RecordScope.USER_SCOPE})
        self._recording = True

    def stop(self) -> list[tuple[str, int, int, int]]:
        """End. Returns name, begin and end (in ns of `time.time_ns`) and a number of the thread, by annotation."""
        if not self._recording:
            return []
        from torch._C import _autograd

        self._recording = False
        try:
            events = _autograd._disable_profiler().events()
        finally:
            self._one_at_a_time.release()
        return [
            (event.name(), event.start_ns(), event.end_ns(), event.start_thread_id())
            for event in events
        ]


def in_backward_pass() -> bool:
    """Whether the calling thread is at work for autograd's engine."""
    return torch._C._current_graph_task_id() != -1


def user_frames(error: BaseException) -> traceback.StackSummary:
    """The user's lines that Dynamo was tracing when it raised this error; empty for errors of others."""
    return getattr(error, "real_stack", None) or traceback.StackSummary()


def concatenated(parts: list[Any], dim: int) -> Any:
    """Inductor's IR of `parts` side by side along `dim`, in one buffer of the default memory format.

    Inductor looks for the format of the parts in the current node's first argument and needs a list there in
    torch 2.11.
    """
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    node = V.graph.current_node
    with V.graph.set_current_node(
        types.SimpleNamespace(args=([],), meta=node.meta, name=node.name)
    ):
        return ir.TensorBox(ir.ConcatKernel.create(parts, dim=dim))


def cached_apart(tag: str) -> Any:
    """Context in which torch's compile caches serve only graphs that were compiled under the same `tag`."""
    from torch.compiler import config

    return config.patch(cache_key_tag=f"{config.cache_key_tag}{tag}")


def without_bookkeeping(compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """What a graph compiled by Inductor calls in the end, for callers that need no profiling or cache records of it."""
    return getattr(compiled, "current_callable", None) or compiled


@contextlib.contextmanager
def part_of_a_graph(outputs: int) -> Iterator[None]:
    """Compile parts of one graph inside: none of them reports its output strides to AOTAutograd.

    They would be taken for those of the whole graph, of which torch allows one report only. What is
    reported instead is that nothing is known about the strides of the graph's `outputs`.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        yield
        return
    reported, context.output_strides = context.output_strides, None
    try:
        yield
        reported.extend([None] * outputs)
    finally:
        context.output_strides = reported


@contextlib.contextmanager
def outputs_are_pairs(complex_outputs: Sequence[int]) -> Iterator[None]:
    """Compile a graph inside some of whose outputs are tensors of pairs in place of complex tensors.

    The strides reported to AOTAutograd afterwards are those of the complex tensors.
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        yield
        return
    own: list[Any] = []
    reported, context.output_strides = context.output_strides, own
    try:
        yield
        for position in complex_outputs:
            if position < len(own) and (strides := own[position]) is not None:
                own[position] = tuple(stride // 2 for stride in strides[:-1])
        reported.extend(own)
    finally:
        context.output_strides = reported


def run_joint_passes(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Inductor's passes that `compile_fx` runs before partitioning, for graphs that do not come through it."""
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    return joint_graph_passes(gm, torch.device("vk"))


@functools.cache
def patched_settings() -> Callable[..., Any]:
    """`torch._inductor.config.patch`."""
    from torch._inductor import config

    return config.patch


def fake_mode_of(example_inputs: Sequence[Any]) -> Any:
    """The FakeTensorMode that the example inputs belong to, or None."""
    from torch._dynamo.utils import detect_fake_mode

    return detect_fake_mode(list(example_inputs))


def tracing_with(fake_mode: Any) -> Any:
    """Context in which Inductor finds `fake_mode`."""
    from torch._inductor.virtualized import V

    return V.set_fake_mode(fake_mode)


def attention_ways() -> tuple[bool, bool]:
    """What `torch.nn.attention.sdpa_kernel` allows: a fused kernel, and the decomposition into products and softmax.

    There is one fused kernel here, and it answers to every name that torch has for one. It is not allowed
    where the decomposition is and has been given a higher priority than flash attention.
    """
    from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends

    backends = _cur_sdpa_kernel_backends()
    decomposed = SDPBackend.MATH in backends
    fused = len(backends) > decomposed
    if decomposed and fused:
        order = torch._C._get_sdp_priority_order()
        fused = order.index(int(SDPBackend.FLASH_ATTENTION)) < order.index(int(SDPBackend.MATH))
    return fused, decomposed

"""`torch.compile(model, backend="torchvk")`: from Dynamo's graphs to compiled plans.

In: FX graphs, from Dynamo or from an eager operator. Out: callables that submit plans. Forbidden: generating code,
touching torch internals other than through `torch_compat`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from torchvk_compile import config, torch_compat
from torchvk_compile.cache_repair import causes, with_repair
from torchvk_compile.compile_lock import one_at_a_time
from torchvk_compile.errors import TorchVKError, UnsupportedOperatorError
from torchvk_compile.profiling import spans
from torchvk_compile.tuning.choice import measured_choices

_MEASURED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
_registration_lock = threading.Lock()
_OPAQUE_MODULES = tuple(
    f"torchvk_compile.{name}"
    for name in (
        "audit",
        "backend",
        "device",
        "host_graph",
        "lowering",
        "plan",
        "profiling",
        "staging",
        "tuning",
    )
)


def torchvk(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a Dynamo graph for the vk device its tensors live on.

    A graph whose tensors are all on the CPU is compiled too: it runs on the current vk device, with its inputs
    uploaded and its outputs downloaded around every call (see `staging`).

    Args:
        gm: the graph.
        example_inputs: fake tensors and sizes it was traced with.
        mode: ``"default"``, or ``"max-autotune"`` to have tiles measured on the device (see `tuning`).
        options: Inductor options to set for this graph; ``max_autotune`` is the same as the mode.

    Raises:
        ValueError: for an unknown mode.
    """
    if mode not in (None, "default", *_MEASURED_MODES):
        raise ValueError(
            f'torchvk knows the modes "default" and "max-autotune", not {mode!r}; there are no CUDA graphs '
            "to ask for: a compiled graph is one submission anyway"
        )
    # Inductor's own switch stays off: it changes what is fused.
    options = dict(options or {})
    measured = options.pop("max_autotune", False) or mode in _MEASURED_MODES
    compile_partition = _compile_measured if measured else _compile_partition
    register_with_inductor()
    devices = {_device_type(value) for value in _graph_values(gm, example_inputs)}

    def compile_on_device(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        settings = _settings() | options
        kind = _cached_as_measured() if measured else contextlib.nullcontext()
        with spans.span("compile", "AOTAutograd"), _cached_by_source(gm), kind:
            try:
                return with_repair(
                    lambda: torch_compat.compile_with_autograd(
                        gm, inputs, compile_partition, settings
                    )
                )
            except Exception as error:
                plain = _plain(error)
                if isinstance(plain, UnsupportedOperatorError):
                    return _refusing(plain, gm)
                raise

    if "vk" in devices:
        return compile_on_device(gm, example_inputs)
    if "cpu" in devices:
        from torchvk_compile.staging import compile_staged

        return compile_staged(gm, example_inputs, compile_on_device)
    return gm.forward  # arithmetic on sizes, without a tensor


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    """Compile a functional, decomposed ATen graph, as eager operators bring them.

    Args:
        gm: the graph; in-place effects are trailing ``aten.copy_`` into placeholders.
        example_inputs: fake tensors, all of one fake mode.

    Returns:
        A callable that takes a list of tensors (which it empties) and returns the outputs.

    Raises:
        UnsupportedOperatorError: when an operator of the graph has no kernel.
    """
    register_with_inductor()
    with (
        torch_compat.tracing_with(torch_compat.fake_mode_of(example_inputs)),
        torch_compat.patched_settings()(_settings()),
        eager_graph(),
        config.patch(without=()),
    ):
        try:
            gm = torch_compat.run_joint_passes(gm)
            return _compile_stages(gm, example_inputs, is_inference=True)
        except Exception as error:
            raise _plain(error) from None


def _settings() -> dict[str, Any]:
    from torchvk_compile.lowering.joint_rules import JointRules
    from torchvk_compile.lowering.online_softmax import OnlineSoftmax
    from torchvk_compile.lowering.roundings import RoundingWhereStored

    return torch_compat.inductor_settings() | {
        "joint_custom_pre_pass": JointRules(),
        "joint_custom_post_pass": RoundingWhereStored(),
        "post_grad_custom_pre_pass": OnlineSoftmax(),
    }


_eager = threading.local()


class eager_graph:
    """Marks the compilation of an eager operator: it must not contain an op that runs eagerly again."""

    def __enter__(self) -> None:
        _eager.depth = getattr(_eager, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        _eager.depth -= 1


def compiling_eager_operator() -> bool:
    """Whether this thread is compiling an eager operator."""
    return getattr(_eager, "depth", 0) > 0


def register_with_inductor() -> None:
    """Tell Dynamo and Inductor about the vk device; happens once, on first use."""
    with _registration_lock:
        _register()


@functools.cache
def _register() -> None:
    torch_compat.check_torch_version()
    torch_compat.complete_operators()
    _keep_dynamo_out()
    from torchvk_compile.codegen.scheduling import VulkanScheduling
    from torchvk_compile.codegen.wrapper import PlanWrapperCodegen
    from torchvk_compile.device_interface import VulkanInterface
    from torchvk_compile.lowering.decompositions import KEEPING_GRADIENTS
    from torchvk_compile.lowering.graph_check import GraphCheck
    from torchvk_compile.lowering.registry import register_lowerings

    torch_compat.register_inductor_backend(
        "vk", VulkanScheduling, PlanWrapperCodegen, VulkanInterface, GraphCheck()
    )
    register_lowerings()
    torch_compat.keep_gradients(KEEPING_GRADIENTS)


def _compile_partition(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
) -> Any:
    """Forward or backward graph of AOTAutograd.

    An operator without a kernel makes the compiled graph raise when it is called, so that the user meets
    `UnsupportedOperatorError` itself and not Dynamo's wrapping of it.
    """
    try:
        with one_at_a_time():
            return _compile_stages(gm, example_inputs, **kwargs)
    except Exception as error:
        plain = _plain(error)
        if isinstance(plain, UnsupportedOperatorError):
            return _boxed(_refusing(plain, gm))
        raise plain from (None if plain is not error else error.__cause__)


def _compile_measured(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
) -> Any:
    """As `_compile_partition`, with tiles that were measured."""
    with measured_choices(), _cached_as_measured():
        return _compile_partition(gm, example_inputs, **kwargs)


def _cached_as_measured() -> contextlib.AbstractContextManager[Any]:
    """Keeps graphs with measured tiles apart from others in torch's caches."""
    return torch_compat.cached_apart("measured")


def _place_of(op: str, gm: torch.fx.GraphModule) -> str:
    """The line of the user's program that first calls an operator of a graph, or an empty string."""
    from torchvk_compile.codegen.origins import frames_of

    for node in gm.graph.nodes:
        if op in (str(node.target), str(node.meta.get("original_aten"))):
            frames = frames_of(node.meta.get("stack_trace") or "")
            if frames:
                return str(frames[0])
    return ""


def _compile_stages(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    from torchvk_compile.host_graph import compile_in_stages, has_host_work
    from torchvk_compile.lowering.complex_edges import compile_with_pairs
    from torchvk_compile.lowering.host_indices import move_indices
    from torchvk_compile.lowering.scalar_operands import put_device_operands_first

    def compile_device_graph(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return compile_with_pairs(gm, inputs, lambda *real: _compile_stage(*real, **kwargs))

    put_device_operands_first(gm)
    move_indices(gm)
    if not has_host_work(gm):
        return compile_device_graph(gm, example_inputs)
    kwargs["static_input_idxs"] = ()
    (output,) = gm.graph.find_nodes(op="output")
    with torch_compat.part_of_a_graph(len(output.args[0])):
        return compile_in_stages(gm, compile_device_graph)


def _compile_stage(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
    settings = torch_compat.control_flow_settings(gm)
    with spans.span("compile", "Inductor"), _cached_by_source(gm), settings:
        return with_repair(lambda: torch_compat.compile_aten_graph(gm, example_inputs, **kwargs))


def _cached_by_source(gm: torch.fx.GraphModule) -> contextlib.AbstractContextManager[Any]:
    """Keeps equal graphs of different programs apart in torch's caches: plans name the lines they come from."""
    from torchvk_compile.codegen.origins import source_digest

    digest = source_digest(gm.graph)
    return torch_compat.cached_apart(digest) if digest else contextlib.nullcontext()


def _refusing(error: UnsupportedOperatorError, gm: torch.fx.GraphModule) -> Callable[..., NoReturn]:
    error.place = error.place or _place_of(error.op, gm)

    def refuse(*inputs: Any) -> NoReturn:
        raise error

    return refuse


def _boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """`function` as AOTAutograd calls graphs: with a list, which is emptied."""

    def call(inputs: list[Any]) -> Any:
        given = tuple(inputs)
        inputs.clear()
        return function(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _plain(error: BaseException) -> BaseException:
    """The exception of ours inside Inductor's wrapping, or the error itself."""
    return next((cause for cause in causes(error) if isinstance(cause, TorchVKError)), error)


def _graph_values(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    values = list(example_inputs)
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        values.extend(value if isinstance(value, (list, tuple)) else [value])
    return values


def _device_type(value: Any) -> str | None:
    return value.device.type if isinstance(value, torch.Tensor) else None


@functools.cache
def _keep_dynamo_out() -> None:
    from torchvk_compile.device import eager

    torch_compat.keep_dynamo_out(*_OPAQUE_MODULES)
    torch_compat.run_without_dynamo(eager.call, eager.is_logged)


if "torch._dynamo" in sys.modules:
    # `torch.compile` is looking the backend up. Dynamo may meet eager operators before it has a graph for us.
    _keep_dynamo_out()

"""Registering the kernels of this room with torch's dispatcher.

In: the KERNELS tables of this room. Out: entries for PrivateUse1, AutogradPrivateUse1 and
AutocastPrivateUse1.
Forbidden: kernels themselves.

A process that only imports torch pays for the few registrations by which a first vk tensor can come
to be; the other eight hundred follow when the device opens.
"""

from __future__ import annotations

import torch

from torchvk_compile.device import pinning, tensors

_KEY = "PrivateUse1"
_AUTOGRAD_KEY = "AutogradPrivateUse1"
_AUTOGRAD_KEY = "AutogradPrivateUse1"
_AUTOCAST_KEY = "AutocastPrivateUse1"
_SPARSE_KEYS = ("SparsePrivateUse1", "SparseCsrPrivateUse1")
_NAMESPACE = "aten::"

_libraries: list[torch.library.Library] = []

# torch composes these from other operators; as one graph each they cost one submission, and the
# compiler knows how to lower or decompose them.
_KEPT_WHOLE = """
    _safe_softmax _stack _unsafe_index _unsafe_index_put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate abs add addr affine_grid_generator all any arange
    binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor celu complex constant_pad_nd convolution
    convolution_backward copysign count_nonzero cummax cummin deg2rad diagonal_backward dist div
    embedding eye floor_divide fmod huber_loss_backward index_fill index_put isinf kthvalue
    ldexp linspace logcumsumexp logical_and logical_not logical_or logical_xor logspace
    logsumexp masked_fill masked_scatter masked_scatter_backward mean mul mv mvlgamma nan_to_num
    native_group_norm native_layer_norm norm polar polygamma put rad2deg range remainder repeat
    rsub slice_backward smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward sort
    special_xlog1py special_zeta stack sub sum xlogy
"""


# These torch composes from operators too, in the formulas of gradients. Step by step, half precision would round every
# intermediate result; CPU and CUDA have kernels of their own that compute in float32.
_FORMULAS_KEPT_WHOLE = ("mish_backward",)


def register_entry_kernels() -> None:
    """Register what can make the first tensor on the device, or prepare host memory for it."""
    library = _new_library("aten")
    for name, function in tensors.KERNELS.items():
        library.impl(name, function, _KEY)
    for name, function in pinning.HOST_KERNELS.items():
        library.impl(name, function, "CPU")


def register_all_kernels() -> None:
    """Register everything else. Called once, before the first device opens."""
    from torchvk_compile.device import (
        attention,
        autocast,
        ctc,
        data_dependent,
        eager,
        fill,
        histograms,
        least_squares,
        margin_loss,
        shapes,
        sparse,
        transfer,
        unique,
        views,
    )

    library = _new_library("aten")
    rooms = (
        views,
        transfer,
        fill,
        data_dependent,
        histograms,
        least_squares,
        unique,
        ctc,
        pinning,
        attention,
    )
    own = {name: function for room in rooms for name, function in room.KERNELS.items()}
    for name, function in own.items():
        library.impl(name, function, _KEY)
    for name in (*_operators_kept_whole(), *_FORMULAS_KEPT_WHOLE):
        if name not in own and name not in tensors.KERNELS:
            library.impl(name, eager.kernel(_overload(name)), _KEY)
    for name, function in shapes.KERNELS.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(_NAMESPACE + name, "Meta"):
            library.impl(name, function, "Meta")
    attention.define_operators()
    for name, function in attention.AUTOGRAD_KERNELS.items():
        library.impl(name, function, _AUTOGRAD_KEY)
    for name, function in margin_loss.AUTOGRAD_KERNELS.items():
        for key in (_KEY, _AUTOGRAD_KEY):
            library.impl(name, function, key)
    fallbacks = _new_library("_")
    fallbacks.fallback(eager.fallback(), _KEY)
    fallbacks.fallback(torch.library.fallthrough_kernel, _AUTOCAST_KEY)
    for key in _SPARSE_KEYS:
        fallbacks.fallback(sparse.refuse, key)
    for name, function in autocast.kernels().items():
        library.impl(name, function, _AUTOCAST_KEY)


def _operators_kept_whole() -> list[str]:
    """Operators to take as they are, where torch would split them before they reach a backend."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    kept_whole = frozenset(_KEPT_WHOLE.split())
    names = []
    for qualified in torch._C._dispatch_get_all_op_names():
        if not qualified.startswith(_NAMESPACE):
            continue
        name = qualified.removeprefix(_NAMESPACE)
        packet, _, overload = name.partition(".")
        composite = has_kernel(qualified, "CompositeExplicitAutograd")
        # Structured operators: torch would allocate the result, then call the out= overload.
        structured = has_kernel(qualified, "CompositeExplicitAutogradNonFunctional")
        whole = packet.startswith("_foreach_") or packet.removesuffix("_") in kept_whole
        if (structured or (composite and whole)) and not overload.endswith("out"):
            names.append(name)
    return names


def _overload(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _new_library(namespace: str) -> torch.library.Library:
    library = torch.library.Library(namespace, "IMPL")
    _libraries.append(library)
    return library

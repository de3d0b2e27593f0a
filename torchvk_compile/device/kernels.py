"""Registering the kernels of this room with torch's dispatcher.

In: the KERNELS tables of this room. Out: entries for PrivateUse1 and AutocastPrivateUse1.
Forbidden: kernels themselves.

A process that only imports torch pays for the few registrations by which a first vk tensor can come
to be; the other six hundred follow when the device opens.
"""

from __future__ import annotations

import torch

from torchvk_compile.device import tensors

_KEY = "PrivateUse1"
_NAMESPACE = "aten::"

_libraries: list[torch.library.Library] = []

_KEPT_WHOLE = (
    # Composite in torch, but better one graph than many: the compiler knows the whole operator.
    "arange.start_step",
    "bernoulli.p",
    "bernoulli_.float",
    "convolution",
    "convolution_backward",
    "embedding",
    "embedding_backward",
    "index_put",
    "index_put_",
    "index_select_backward",
    "masked_fill.Scalar",
    "masked_fill.Tensor",
    "native_group_norm",
    "native_layer_norm",
    "nll_loss2d_forward",
    "randint.low",
    "rsub.Tensor",
    "rsub.Scalar",
    "softmax.int",
    "sum",
    "mean",
    "var_mean.correction",
)


def register_entry_kernels() -> None:
    """Register what can make the first tensor on the device."""
    library = _new_library("aten")
    for name, function in tensors.KERNELS.items():
        library.impl(name, function, _KEY)


def register_all_kernels() -> None:
    """Register everything else. Called once, before the first device opens."""
    from torchvk_compile.device import eager, fill, transfer, views

    library = _new_library("aten")
    own = tensors.KERNELS | views.KERNELS | transfer.KERNELS | fill.KERNELS
    for name, function in own.items():
        if name not in tensors.KERNELS:
            library.impl(name, function, _KEY)
    for name in _operators_kept_whole():
        if name not in own:
            library.impl(name, eager.kernel(_overload(name)), _KEY)
    _new_library("_").fallback(eager.fallback, _KEY)


def _operators_kept_whole() -> list[str]:
    """Operators that torch would otherwise run as an allocation followed by an ``out=`` overload."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith(_NAMESPACE):
            continue
        if has_kernel(name, "CompositeExplicitAutogradNonFunctional") or name.startswith(
            _NAMESPACE + "_foreach_"
        ):
            names.append(name.removeprefix(_NAMESPACE))
    return names


def _overload(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _new_library(namespace: str) -> torch.library.Library:
    library = torch.library.Library(namespace, "IMPL")
    _libraries.append(library)
    return library

"""``torch.autocast("vk")``: which operators run in lower precision, which in float32.

In: calls on vk tensors inside an autocast block. Out: the same calls on cast arguments.
Forbidden: casting tensors of other devices, or float64.

The lists are those torch applies on every device (ATen/autocast_mode.h); for this dispatch key
torch leaves the registration to the backend. Casts are not cached: a weight is cast at each use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

_LOWER_PRECISION = """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul
    einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    scaled_dot_product_attention
"""

_FLOAT32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
    pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm
    rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity
    poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div
    l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    dist pdist cdist renorm logsumexp norm.Scalar norm.ScalarOpt_dim upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
"""

# float32 unless the caller names a dtype.
_FLOAT32_BY_DEFAULT = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
    linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList
"""

_WIDEST = """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
"""

_HALVES = (torch.float16, torch.bfloat16)


def kernels() -> dict[str, Callable[..., Any]]:
    """Kernels for the dispatch key AutocastPrivateUse1, under their ATen names."""
    policies = (
        (_LOWER_PRECISION, _lower_precision),
        (_FLOAT32, _float32),
        (_FLOAT32_BY_DEFAULT, _float32_by_default),
        (_WIDEST, _widest),
    )
    return {
        name: policy(overload)
        for names, policy in policies
        for name in names.split()
        if (overload := _overload(name)) is not None
    } | {"binary_cross_entropy": _refuse_binary_cross_entropy}


def _overload(name: str) -> torch._ops.OpOverload | None:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def _lower_precision(op: torch._ops.OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            dtype = torch.get_autocast_dtype("vk")
            return op(*_cast(args, dtype), **_cast(kwargs, dtype))

    return kernel


def _float32(op: torch._ops.OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            return op(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))

    return kernel


def _float32_by_default(op: torch._ops.OpOverload) -> Callable[..., Any]:
    names = [argument.name for argument in op._schema.arguments]
    position = names.index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("dtype") or (args[position] if position < len(args) else None)
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            if given is None:
                args, kwargs = _cast(args, torch.float32), _cast(kwargs, torch.float32)
            return op(*args, **kwargs)

    return kernel


def _widest(op: torch._ops.OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            dtype = torch.get_autocast_dtype("vk")
            if any(tensor.dtype is torch.float32 for tensor in _eligible((args, kwargs))):
                dtype = torch.float32
            return op(*_cast(args, dtype), **_cast(kwargs, dtype))

    return kernel


def _refuse_binary_cross_entropy(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
        "binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, or leave the autocast "
        'block for the loss: with torch.autocast("vk", enabled=False).'
    )


def _is_eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "vk"
        and (value.dtype in _HALVES or value.dtype is torch.float32)
    )


def _eligible(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _eligible(item)]
    return [value] if _is_eligible(value) else []


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if _is_eligible(value) else value
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {name: _cast(item, dtype) for name, item in value.items()}
    return value

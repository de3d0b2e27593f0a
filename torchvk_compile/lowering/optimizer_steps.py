"""One step of an optimizer over all its parameters, and gradient scaling, as formulas.

In: the arguments of ATen's fused optimizer and AMP operators, as tensors and numbers. Out: the new values of
everything the operator writes. Forbidden: writing to an argument; device work; anything but tracing.

Rates may be numbers or zero-dimensional tensors. Where `found_inf` is 1 the old values are kept, and gradients are
divided by `grad_scale` first, as `torch.amp.GradScaler` expects of a fused optimizer. 16-bit tensors are computed with
in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

aten = torch.ops.aten

Tensors: TypeAlias = Sequence[torch.Tensor]
Rate: TypeAlias = float | torch.Tensor

_HALF = (torch.float16, torch.bfloat16)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _HALF else tensor


def _gradient(
    grad: torch.Tensor, grad_scale: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient without its scale, wide and in its own dtype (which is written back)."""
    if grad_scale is None:
        return _wide(grad), grad
    unscaled = _wide(grad) / grad_scale
    return unscaled, unscaled.to(grad.dtype)


def _unless(found_inf: torch.Tensor | None, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    new = new.to(old.dtype)
    return new if found_inf is None else torch.where(found_inf == 1, old, new)


def _bias_correction(beta: float, step: torch.Tensor) -> torch.Tensor:
    """``1 - beta ** step`` without the cancellation that float32 has for rates close to 1."""
    return -torch.expm1(step * math.log(beta)) if beta else torch.ones_like(step)


def _adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: Rate,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
    decoupled: bool,
) -> tuple[list[torch.Tensor], ...]:
    """Adam (Kingma and Ba, 2015, algorithm 1), or AdamW (Loshchilov and Hutter, 2019) if `decoupled`.

    `state_steps` have been counted up already. Returns parameters, gradients, first moments, second moments and their
    largest so far.
    """
    results: tuple[list[torch.Tensor], ...] = ([], [], [], [], [])
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        p, (g, grad_out) = _wide(param), _gradient(grad, grad_scale)
        g = -g if maximize else g
        if weight_decay and decoupled:
            p = p - p * lr * weight_decay
        elif weight_decay:
            g = g + p * weight_decay
        mean = _wide(exp_avgs[i]) * beta1 + g * (1 - beta1)
        square = _wide(exp_avg_sqs[i]) * beta2 + g * g * (1 - beta2)
        # float64 parameters deserve float64 corrections.
        step = state_steps[i].to(torch.promote_types(p.dtype, state_steps[i].dtype))
        largest = square
        if amsgrad:
            largest = torch.maximum(_wide(max_exp_avg_sqs[i]), square)
            results[4].append(_unless(found_inf, largest, max_exp_avg_sqs[i]))
        root = largest.sqrt() / _bias_correction(beta2, step).sqrt() + eps
        p = p - mean / _bias_correction(beta1, step) * lr / root
        results[0].append(_unless(found_inf, p, param))
        results[1].append(_unless(found_inf, grad_out, grad))
        results[2].append(_unless(found_inf, mean, exp_avgs[i]))
        results[3].append(_unless(found_inf, square, exp_avg_sqs[i]))
    return results


def adam(*lists: Tensors, **numbers: Any) -> tuple[list[torch.Tensor], ...]:
    """``aten._fused_adam``; see `_adam`."""
    return _adam(*lists, **numbers, decoupled=False)


def adamw(*lists: Tensors, **numbers: Any) -> tuple[list[torch.Tensor], ...]:
    """``aten._fused_adamw``; see `_adam`."""
    return _adam(*lists, **numbers, decoupled=True)


def sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Rate,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], ...]:
    """``aten._fused_sgd`` (formulas: torch.optim.SGD). Returns parameters, gradients and momentum buffers."""
    results: tuple[list[torch.Tensor], ...] = ([], [], [])
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        p, (g, grad_out) = _wide(param), _gradient(grad, grad_scale)
        g = -g if maximize else g
        if weight_decay:
            g = g + p * weight_decay
        if momentum:
            buffer = _wide(momentum_buffers[i]) * momentum + g * (1 - dampening)
            buffer = g if is_first_step else buffer
            results[2].append(_unless(found_inf, buffer, momentum_buffers[i]))
            g = g + buffer * momentum if nesterov else buffer
        results[0].append(_unless(found_inf, p - g * lr, param))
        results[1].append(_unless(found_inf, grad_out, grad))
    return results


def adagrad(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: Rate,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], ...]:
    """``aten._fused_adagrad`` (formulas: torch.optim.Adagrad).

    Returns parameters, gradients, sums and steps, of which the steps stay as they are.
    """
    results: tuple[list[torch.Tensor], ...] = ([], [], [], list(state_steps))
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        p, (g, grad_out) = _wide(param), _gradient(grad, grad_scale)
        g = -g if maximize else g
        if weight_decay:
            g = g + p * weight_decay
        total = _wide(state_sums[i]) + g * g
        step = state_steps[i].to(torch.promote_types(p.dtype, state_steps[i].dtype))
        p = p - g / (total.sqrt() + eps) * lr / (1 + (step - 1) * lr_decay)
        results[0].append(_unless(found_inf, p, param))
        results[1].append(_unless(found_inf, grad_out, grad))
        results[2].append(_unless(found_inf, total, state_sums[i]))
    return results


def unscale(
    grads: Tensors, found_inf: torch.Tensor, inv_scale: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """``aten._amp_foreach_non_finite_check_and_unscale``.

    Returns the gradients times `inv_scale`, and `found_inf` raised to 1 if one of them is not finite.
    """
    outside = found_inf
    for grad in grads:
        outside = torch.where((~torch.isfinite(grad)).any(), torch.ones_like(outside), outside)
    return [(_wide(grad) * inv_scale).to(grad.dtype) for grad in grads], outside


def update_scale(
    scale: torch.Tensor,
    growth_tracker: torch.Tensor,
    found_inf: torch.Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten._amp_update_scale`` (torch.amp.GradScaler.update). Returns the scale and the steps without a skip.

    The scale shrinks after a step that was skipped, and grows after `growth_interval` steps in a row that were not,
    unless it would overflow.
    """
    skipped = found_inf != 0
    successes = growth_tracker + 1
    due = successes == growth_interval
    grown = scale * scale_growth_factor
    kept = torch.where(due & torch.isfinite(grown), grown, scale)
    new_scale = torch.where(skipped, scale * scale_backoff_factor, kept)
    return new_scale, torch.where(skipped | due, torch.zeros_like(successes), successes)


def _overloads(name: str) -> list[torch._ops.OpOverload]:
    """The overloads with a number and with a tensor as the rate; the oldest torch lacks some."""
    packet = getattr(aten, name)
    return [
        getattr(packet, overload)
        for overload in ("default", "tensor_lr")
        if hasattr(packet, overload)
    ]


def _outputs(formula: Callable[..., Any], op: torch._ops.OpOverload) -> Callable[..., Any]:
    """The formula, cut to the results that an overload returns."""
    return lambda *args, **kwargs: formula(*args, **kwargs)[: len(op._schema.returns)]


_FORMULAS: dict[str, Callable[..., Any]] = {
    "_fused_adam": adam,
    "_fused_adamw": adamw,
    "_fused_sgd": sgd,
    "_fused_adagrad": adagrad,
    "_amp_foreach_non_finite_check_and_unscale": unscale,
    "_amp_update_scale": update_scale,
}

IN_PLACE: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    op: formula for name, formula in _FORMULAS.items() for op in _overloads(f"{name}_")
}
"""Formulas of operators that write their first arguments, one for each result."""

FUNCTIONAL: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    op: _outputs(formula, op) for name, formula in _FORMULAS.items() for op in _overloads(name)
}
"""Formulas of the same operators as they stand in graphs."""

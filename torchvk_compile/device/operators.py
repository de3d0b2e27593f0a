"""What an operator's schema says about its call: what it writes, what it returns, what it draws.

In: ATen overloads. Out: `OperatorInfo`, made once per operator.
Forbidden: anything that depends on the tensors of one call.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, eq=False)
class OperatorInfo:
    """One operator's calling convention. There is one object an operator, so that it stands for it in keys.

    Attributes:
        name: as users know it, ``aten.add_.Tensor``.
        written: names and positions of the arguments it writes; position -1 is keyword-only.
        returns: for each result the name of the written argument it is, or None for a fresh one.
        returns_list: whether its only result is a list of tensors.
        generator: name and position of its random generator argument, or None.
    """

    name: str
    written: tuple[tuple[str, int], ...]
    returns: tuple[str | None, ...]
    returns_list: bool
    generator: tuple[str, int] | None

    def written_tensors(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[torch.Tensor]:
        """The tensors a call writes, lists flattened."""
        for value in self.written_by_name(args, kwargs).values():
            if isinstance(value, torch.Tensor):
                yield value
            elif value is not None:
                yield from value

    def written_by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments a call writes, under their names."""
        return {
            name: args[position] if 0 <= position < len(args) else kwargs.get(name)
            for name, position in self.written
        }

    def without_generator(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], torch.Generator | None]:
        """The call without its generator, and the generator."""
        assert self.generator is not None
        name, position = self.generator
        if name in kwargs:
            return args, {**kwargs, name: None}, kwargs[name]
        if 0 <= position < len(args):
            generator = args[position]
            return (*args[:position], None, *args[position + 1 :]), kwargs, generator
        return args, kwargs, None


@functools.cache
def operator_info(op: torch._ops.OpOverload) -> OperatorInfo:
    """The `OperatorInfo` of an overload."""
    schema = op._schema
    written: list[tuple[str, int]] = []
    aliases: dict[str, str] = {}
    generator = None
    for position, argument in enumerate(schema.arguments):
        position = -1 if argument.kwarg_only else position
        alias = argument.alias_info
        if alias is not None and alias.is_write:
            written.append((argument.name, position))
            for name in alias.before_set:
                aliases[name] = argument.name
        if "Generator" in str(argument.type):
            generator = (argument.name, position)
    returns = []
    for result in schema.returns:
        alias = result.alias_info
        source = None
        if alias is not None and alias.is_write:
            source = next((aliases[name] for name in alias.before_set if name in aliases), None)
        returns.append(source)
    returns_list = len(schema.returns) == 1 and str(schema.returns[0].type).startswith("List")
    return OperatorInfo(str(op), tuple(written), tuple(returns), returns_list, generator)

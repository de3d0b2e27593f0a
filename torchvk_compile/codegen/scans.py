"""Scans of a kernel: running combinations along the loop, handed on from one round of a workgroup to the next.

In: values inside the loop and a function that combines two of them. Out: for every element the combination of all up
to it. Forbidden: memory accesses; assuming that the function commutes or has an identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.codegen.common import CSEVariable, IndentedBuffer
from torch._inductor.virtualized import OpsValue

from torchvk_compile.codegen.dtypes import compute_dtype, compute_type, conversion
from torchvk_compile.codegen.templates import KERNEL_NAME

if TYPE_CHECKING:
    from torchvk_compile.codegen.layout import WorkgroupLayout

Values = tuple[CSEVariable, ...]
Combine = Callable[[Values, Values], Values]


class ScanCodegen:
    """The part of `SlangKernel` that knows `torchvk_scan.slang`.

    A kernel with a scan walks its loops in step: all invocations of a workgroup make the same number of rounds,
    because each round ends in barriers. Elements beyond the end are computed from clamped indices and not stored.
    """

    layout: WorkgroupLayout
    prefix: IndentedBuffer
    compute: IndentedBuffer
    helpers: IndentedBuffer
    cse: Any

    def has_scan(self) -> bool:
        """Whether some node of the kernel scans along the reduction dimension."""
        return self.features.contains_op("scan")  # type: ignore[attr-defined,no-any-return]

    def scan(self, dtypes: tuple[torch.dtype, ...], combine_fn: Combine, values: Values) -> Values:
        """Inclusive scan of a tuple of values along the loop.

        Args:
            dtypes: of the scanned values; half precision is carried as float32.
            combine_fn: (earlier, later) → combined, written with `V.ops`.
            values: this element's values.
        """
        if self._load_mask is not None:  # type: ignore[attr-defined]
            raise NotImplementedError("a scan inside a masked expression")
        for module in ("torchvk_scan", "torchvk_reduce"):
            self.require(module)  # type: ignore[attr-defined]
        registers = tuple(compute_dtype(dtype) for dtype in dtypes)
        struct = self._combiner(combine_fn, registers)
        element = ", ".join(
            self._converted(value, register)
            for value, register in zip(values, registers, strict=True)
        )
        key = f"{struct}({element})"
        results = tuple(self.cse.try_get(f"{key}.{i}") for i in range(len(values)))
        if None not in results:
            return results
        state = self._scanned(struct, element)
        results = tuple(self.cse.newvar(dtype=register) for register in registers)
        for i, (result, register) in enumerate(zip(results, registers, strict=True)):
            self.compute.writeline(f"const {compute_type(register)} {result} = {state}.v{i};")
            self.cse.put(f"{key}.{i}", result)
        return results

    def _scanned(self, struct: str, element: str) -> str:
        """Name of the state that combines all elements up to this invocation's."""
        number = self.cse.newvar()
        state, total, carry = (f"{name}_{number}" for name in ("scanned", "total", "carry"))
        layout = self.layout
        shape = f"{layout.rows}, {layout.columns}"
        if layout.inner:
            call = f"scanRow<{struct}, {shape}, {layout.subgroup}>"
        else:
            call = f"scanColumn<{struct}, {shape}>"
        self.compute.writelines(
            [
                f"{struct}.State {state} = {{ {element} }};",
                f"{struct}.State {total};",
                f"{state} = {call}({state}, row, column, {total});",
            ]
        )
        if not layout.persistent:
            self.prefix.writeline(f"{struct}.State {carry} = {{}};")
            self.compute.writelines(
                [
                    f"if ({self.loop_base()} > 0)",  # type: ignore[attr-defined]
                    "{",
                    f"    {state} = {struct}.combine({carry}, {state});",
                    f"    {total} = {struct}.combine({carry}, {total});",
                    "}",
                    f"{carry} = {total};",
                ]
            )
        return state

    def _converted(self, value: CSEVariable, register: torch.dtype) -> str:
        assert value.dtype is not None
        text, module = conversion(str(value), value.dtype, register)
        if module is not None:
            self.require(module)  # type: ignore[attr-defined]
        return text

    def _combiner(self, combine_fn: Combine, registers: tuple[torch.dtype, ...]) -> str:
        """Name of the Slang struct that combines states; equal functions share one."""
        names = [f"v{i}" for i in range(len(registers))]
        body = IndentedBuffer()
        with self.swap_buffers(body):  # type: ignore[attr-defined]
            # Names of its own, so that equal functions give equal text.
            self.cse = type(self.cse)("", ";", name_prefix="part")
            operands = [
                tuple(
                    self.cse.namedvar(f"{side}.{name}", dtype=register)
                    for name, register in zip(names, registers, strict=True)
                )
                for side in ("earlier", "later")
            ]
            results = combine_fn(*operands)
            combined = [
                self._converted(_variable(result), register)
                for result, register in zip(results, registers, strict=True)
            ]
        text = IndentedBuffer()
        with text.indent():
            text.writeline("struct State")
            text.writeline("{")
            for name, register in zip(names, registers, strict=True):
                text.writeline(f"    {compute_type(register)} {name};")
            text.writeline("};")
            text.writeline("static State combine(State earlier, State later)")
            text.writeline("{")
            with text.indent():
                text.splice(body)
                text.writeline(f"return {{ {', '.join(combined)} }};")
            text.writeline("}")
            shuffled = ", ".join(f"shuffleValue(state.{name}, lane)" for name in names)
            text.writeline("static State shuffle(State state, uint lane)")
            text.writeline("{")
            text.writeline(f"    return {{ {shuffled} }};")
            text.writeline("}")
        return self._define_helper("Scan", "IScan", text.getvalue())

    def _define_helper(self, kind: str, interface: str, body: str) -> str:
        """Put a struct before the entry point; the name of the one with the same body if there is one."""
        if not hasattr(self, "_helper_names"):
            self._helper_names: dict[str, str] = {}
        if body not in self._helper_names:
            name = f"{KERNEL_NAME}_{kind}{len(self._helper_names)}"
            self._helper_names[body] = name
            self.helpers.splice(f"struct {name} : {interface}\n{{\n{body}}};\n")
        return self._helper_names[body]


def _variable(value: Any) -> CSEVariable:
    return value.value if isinstance(value, OpsValue) else value

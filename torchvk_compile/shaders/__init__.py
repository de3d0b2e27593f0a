"""Slang to SPIR-V.

In: the Slang source of one module and the names of its entry points. Out: one SPIR-V binary that
holds them all (SPIR-V 1.5, Vulkan 1.2), from the disk cache when it was compiled before.
Forbidden: knowing what a kernel computes; touching torch or the Vulkan device.
"""

from torchvk_compile.shaders.location import SlangCompiler, find_compiler, template_root
from torchvk_compile.shaders.module import compile_module, load_compiler
from torchvk_compile.shaders.spirv import FloatControls

__all__ = [
    "FloatControls",
    "SlangCompiler",
    "compile_module",
    "find_compiler",
    "load_compiler",
    "template_root",
]

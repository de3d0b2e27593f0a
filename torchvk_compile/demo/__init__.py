"""``torchvk demo``: train a digit classifier on Vulkan and show the CPU's run beside it.

In: options of the command line. Out: a table, optionally JSON; the exit status is the command's.
Forbidden: anything a user's own training script could not do: no private torchvk interfaces.
"""

from torchvk_compile.demo.command import DemoOptions, run

__all__ = ["DemoOptions", "run"]

"""From Inductor's loop IR to Slang kernels and dispatches.

In: scheduled loop nodes and the device's profile. Out: `KernelSpec`s with their source, and the wrapper module
that runs them as plans. Forbidden: opening the device, allocating memory, compiling shaders.
"""

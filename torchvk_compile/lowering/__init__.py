"""ATen ops that need a kernel of ours, and the checks every graph passes before it is lowered.

In: ATen nodes of a graph for a vk device. Out: Inductor IR, or a clear refusal. Forbidden: Slang text.
"""

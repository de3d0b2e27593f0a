"""The figures of `benchmarks/kernels.py`: one module per subject, and what they share.

In: a scale, and the sides to compare. Out: cases, their times, checks against float64. Forbidden: asserting speeds.
"""

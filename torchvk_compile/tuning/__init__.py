"""Choosing kernel configurations by measuring them on the device (``mode="max-autotune"``).

In: a problem (operator, shapes, strides, dtypes), the default configuration and alternatives. Out: the fastest of them.
Forbidden: knowing what a configuration means; changing results; measuring unless it was asked for.
"""

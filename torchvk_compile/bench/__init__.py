"""``torchvk bench``: six experiments whose questions were written down before their answers.

In: the plan (`benchmarks/plan.toml`) and the options of the command line. Out: JSON lines with raw samples, a report.
Forbidden: deciding after the fact what counts as success; dropping samples; private interfaces of the device.
"""

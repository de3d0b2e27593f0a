"""Models to train in benchmarks and to compile for a target, written out with plain torch modules.

In: sizes. Out: randomly initialised `nn.Module`s on the CPU. Forbidden: weights from anywhere, branches on the device.
"""

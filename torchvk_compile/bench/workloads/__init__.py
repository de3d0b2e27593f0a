"""What is timed, in a form that any PyTorch process can run.

In: a case as plain data, a device, how to compile. Out: a `Job`, or the outcome of a training.
Forbidden: importing the rest of TorchVK: a peer that is a PrivateUse1 device, too, runs this in a process of its own,
where this directory is a package by itself. Hence the relative imports.
"""

from .jobs import Job, build
from .models import random_batch
from .training import INSTANCES, Compile, Training, compiler, train

__all__ = [
    "INSTANCES",
    "Compile",
    "Job",
    "Training",
    "build",
    "compiler",
    "random_batch",
    "train",
]

"""Compiles Fourier transforms and complex functions for the current device and prints their kernels' statistics."""

from __future__ import annotations

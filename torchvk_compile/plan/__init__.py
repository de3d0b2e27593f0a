"""From steps and buffers to one recorded submission.

In: kernels, dispatches and buffer lifetimes from code generation. Out: a serialisable `GraphPlan` and
its executor over the C++ runtime. Forbidden: looking at FX or Inductor objects, generating Slang.
"""

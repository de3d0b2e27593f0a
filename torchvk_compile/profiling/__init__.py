"""Where the time goes: on the device, on the host, in the compiler.

In: spans that the backend, the executor and the copies report, timestamps of the runtime, torch's annotations.
Out: `profile()`: tables and a Chrome trace. Forbidden: costing anything while nobody profiles.
"""

"""What a compiled model became: kernels, sources, memory plan, times.

In: a compiled callable and its inputs. Out: an `Inspection`: text, JSON, one HTML page.
Forbidden: changing what is compiled; needing a network.
"""

"""GPU counters, from wherever they can be had: NVML, nvidia-smi (a command or a saved CSV), a DCGM exporter.

All give the same words of `readings`, one set per GPU; nothing here asks a GPU to change anything.
"""

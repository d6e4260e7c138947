"""Facts about accelerators: memory, bandwidth, dense compute, each with its source.

Belongs here: one data row per device, finding a device by any name people use, describing an unknown one in
a file. Does not belong here: what a model or an engine makes of a device (perf, engines), live counters
(observe).
"""

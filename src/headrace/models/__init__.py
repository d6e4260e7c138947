"""Facts about models: geometry from a config.json, bytes of weights, KV and state, FLOPs.

Belongs here: reading configs and safetensors headers (as untrusted data), counting parameters, the built-in
geometries. Does not belong here: how an engine lays pools out (engines), how long a step takes (perf).
"""

"""The emulated engine: HTTP on loopback in SGLang 0.5.12's dialect or vLLM's, with made-up answers and times.

`EmulatedFleet` (asyncio) and `ThreadedFleet` (for synchronous callers) start N servers in this process.
"""

from headrace.simulate.emulate.faults import Faults
from headrace.simulate.emulate.fleet import EmulatedFleet, ThreadedFleet
from headrace.simulate.emulate.generation import ReplicaStats
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.timing import StepTimes

__all__ = ["EmulatedFleet", "EmulatorOptions", "Faults", "ReplicaStats", "StepTimes", "ThreadedFleet"]

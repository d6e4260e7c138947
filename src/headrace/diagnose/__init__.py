"""The method in six steps: measure, compare, decompose, diagnose, propose, estimate.

Belongs here: what an `Observation` says about what binds a fleet, as pure functions, one module a step. Does
not belong here: reading evidence (`observe/`), what is particular to an engine (`engines/`), how a diagnosis
looks (`report/`), any I/O and any clock.
"""

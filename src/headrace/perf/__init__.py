"""Step time from physics: operators on their rooflines, host time, closed loop, calibration.

Belongs here: what a decode step or a prefill chunk costs on a device, with its range, and how what was
observed corrects it. It takes its own small record of options, which engines fill. Does not belong here:
flags, metrics, memory plans (engines); event-by-event simulation (simulate).
"""

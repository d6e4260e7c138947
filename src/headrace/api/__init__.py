"""The commands as Python functions of the same names and words: `headrace.run(...)`, `headrace.status(...)`.

Nothing here prints. Expected failures are the errors of `headrace.errors`. The modules are the panels of
`headrace --help`: drive, look, decide, change, tools.
"""

from headrace.api.change import fleet_add, fleet_drain, fleet_remove, fleet_replies
from headrace.api.decide import Planned, gpus, model, plan, predict, simulate
from headrace.api.drive import export, run, run_resolved, status
from headrace.api.look import diagnose, record, report, watch
from headrace.api.tools import demo, emulate

__all__ = [
    "Planned",
    "demo",
    "diagnose",
    "emulate",
    "export",
    "fleet_add",
    "fleet_drain",
    "fleet_remove",
    "fleet_replies",
    "gpus",
    "model",
    "plan",
    "predict",
    "record",
    "report",
    "run",
    "run_resolved",
    "simulate",
    "status",
    "watch",
]

"""headrace: feeds a fleet of inference servers with an offline generation job and says what holds it back.

The commands are functions here, by the same names and words: `run`, `status`, `export`, `plan`, `predict`,
`gpus`, `model`, `record`, `fleet_add`, `fleet_drain`, `fleet_remove`, `demo`, `emulate`, `watch`; and
`headrace.api.diagnose`, `headrace.api.report` and `headrace.api.simulate`, because `headrace.diagnose`,
`headrace.report` and `headrace.simulate` are packages. They are loaded when first used. What they raise is in
`headrace.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "demo",
    "emulate",
    "export",
    "fleet_add",
    "fleet_drain",
    "fleet_remove",
    "gpus",
    "model",
    "plan",
    "predict",
    "record",
    "run",
    "status",
    "watch",
]

if TYPE_CHECKING:
    from headrace.api import (
        demo,
        emulate,
        export,
        fleet_add,
        fleet_drain,
        fleet_remove,
        gpus,
        model,
        plan,
        predict,
        record,
        run,
        status,
        watch,
    )


def __getattr__(name: str) -> Any:
    if name in __all__:
        from headrace import api

        return getattr(api, name)
    raise AttributeError(f"module 'headrace' has no attribute '{name}'")

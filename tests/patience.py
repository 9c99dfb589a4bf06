"""For tests of batch jobs whose subject is not time: a server, or the job itself, may stand still for some seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Unavailable
from remuda.batch import endpoint, prepare
from remuda.batch.pipeline import flights, unheard

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.batch.pipeline.transport import Transport

STILL_S = 120.0


def wait_for_models(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Whoever listens may take its time for the first answer; where nobody listens that is told as soon as ever.

    Args:
        put: sets an attribute.
    """
    put(prepare, "ask_models", _ask_models)


def seldom_ask_twice(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """A question is asked a second time only after minutes, so that those which a server counts are as many as rows."""
    for module, name in ((unheard, "SOONEST_S"), (unheard, "_SILENT_S"), (flights, "SOONEST_S")):
        assert hasattr(module, name)
        put(module, name, STILL_S)


async def _ask_models(transport: Transport, where: str, **how: Any) -> list[str]:
    deadline = time.monotonic() + STILL_S
    while True:
        try:
            return await endpoint.ask_models(transport, where, **how)
        except Unavailable as error:
            if "no answer within" not in error.message or time.monotonic() > deadline:
                raise

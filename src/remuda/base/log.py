"""Logging for long-lived processes: one line an event, time first, secrets never."""

from __future__ import annotations

import logging
import sys

from remuda.base.settings import setting


def setup(level: str = "") -> None:
    """Send the log to standard error. `level` overrides `REMUDA_LOG_LEVEL`; an unknown level means info."""
    chosen = logging.getLevelNamesMapping().get((level or setting("LOG_LEVEL") or "info").upper(), logging.INFO)
    logging.basicConfig(
        level=chosen,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        force=True,
    )
    for name in ("alembic", "uvicorn"):
        logging.getLogger(name).setLevel(max(chosen, logging.WARNING))

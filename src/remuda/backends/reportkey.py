"""With what an allocation reports: written into its directory when it is submitted, rendered and shown nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.base.disk.paths import StatePaths
from remuda.base.secrets import lasting_secret
from remuda.wire.report import key_for

if TYPE_CHECKING:
    from pathlib import Path


def report_key(workloads: Path, token: str) -> str:
    """The key of one allocation under the run directories `workloads`; it tells nothing of the host's secret.

    Raises:
        OSError: the secret can be neither read nor made.
    """
    return key_for(lasting_secret(StatePaths(workloads.parent).report_secret), token)

"""Settings from the environment and `.env` files: `REMUDA_*`, with `DOMYN_SWARM_*` read as it is.

Precedence: the process environment, `./.env`, `~/.remuda/.env`. The first that sets a name wins.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

PREFIXES = ("REMUDA_", "DOMYN_SWARM_")
#: Names that users of other tools have in their environment already, by our setting.
ALIASES = {
    "API_TOKEN": ("API_TOKEN",),
    "LEPTON_API_TOKEN": ("LEPTONAI_API_TOKEN",),
    "LEPTON_WORKSPACE_ID": ("LEPTON_WORKSPACE_ID",),
}
KNOWN = {
    "HOME": "state directory (default ~/.remuda)",
    "DEFAULTS": "defaults file written by `remuda init defaults` (default HOME/defaults.yaml)",
    "LOG_LEVEL": "debug, info, warning or error (default info)",
    "DATABASE_URL": "SQLAlchemy URL of the state database (default SQLite in HOME)",
    "API_TOKEN": "token for OpenAI-compatible endpoints that ask for one",
    "REPORT_HOST": "address of this machine at which nodes report to the host (default: found out)",
    "SLURM_POLL_S": "seconds between two questions to Slurm (default 15)",
    "MAIL_USER": "address for scheduler notifications",
}


@cache
def _dotenv(path: str) -> dict[str, str]:
    if not Path(path).is_file():
        return {}
    from dotenv import dotenv_values

    return {name: value for name, value in dotenv_values(path).items() if value is not None}


def variable(name: str) -> tuple[str, str]:
    """Value and origin of one environment variable, `.env` files included; two empty strings when unset."""
    if name in os.environ:
        return os.environ[name], f"environment {name}"
    for path in (str(Path.cwd() / ".env"), str(Path.home() / ".remuda" / ".env")):
        value = _dotenv(path).get(name)
        if value is not None:
            return value, f"{path} {name}"
    return "", ""


def setting(name: str) -> str:
    """Value of the setting `name` (without prefix), empty when unset. See `KNOWN`."""
    return setting_with_origin(name)[0]


def setting_with_origin(name: str) -> tuple[str, str]:
    """Value of the setting `name` and where it came from; two empty strings when unset."""
    for full in (*(prefix + name for prefix in PREFIXES), *ALIASES.get(name, ())):
        value, origin = variable(full)
        if origin:
            return value, origin
    return "", ""

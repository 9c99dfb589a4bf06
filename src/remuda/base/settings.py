"""Settings from the environment and `.env` files: `REMUDA_*`, with `DOMYN_SWARM_*` read as it is.

Precedence: the process environment, `./.env`, `~/.remuda/.env`. The first that sets a name wins.

Whoever made the folder in which a command is typed wrote its `.env`: a repository that was cloned, a colleague. So that
file gives data only (`FROM_HERE`); what chooses programs, places or the host is not read from it, which is said once.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.disk.private import check_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.base.disk.paths import StatePaths

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
    "API_TOKEN": "token for the endpoint that OPENAI_BASE_URL or ENDPOINT names in the same place",
    "REPORT_HOST": "address of this machine at which nodes report to the host (default: found out)",
    "SLURM_POLL_S": "seconds between two questions to Slurm (default 15)",
    "KUBERNETES_POLL_S": "seconds between two questions to a cluster of Kubernetes (default 5)",
    "MAIL_USER": "address for scheduler notifications",
}


#: All that `./.env` may set, without prefix, beside variables that a flag or a document names.
FROM_HERE = frozenset({"API_TOKEN", "LOG_LEVEL", "MAIL_USER", "SBATCH_ACCOUNT", "SBATCH_QOS"})


@cache
def _dotenv(path: str) -> dict[str, str]:
    """A file of the user's own."""
    if not Path(path).is_file():
        return {}
    from dotenv import dotenv_values

    check_private(Path(path), below=Path(path).parent)
    return {name: value for name, value in dotenv_values(path).items() if value is not None}


@cache
def _dotenv_here(path: str) -> dict[str, str]:
    """A file of anybody's; says which of its settings are not read."""
    try:
        if not Path(path).is_file():
            return {}
        from dotenv import dotenv_values

        # Nothing of the environment is put into its values: one could be an address, and another a key.
        found = {name: value for name, value in dotenv_values(path, interpolate=False).items() if value is not None}
    except (OSError, UnicodeDecodeError):
        return {}
    ignored = ", ".join(name for name in found if _chooses(name) and name not in os.environ)
    if ignored:
        said = f"{path} sets {ignored}, which is not read: what chooses programs, places or the host comes from"
        said = f"warning: {said} the environment or ~/.remuda/.env"
        sys.stderr.write("".join(letter for letter in said if letter.isprintable()) + "\n")
    return {name: value for name, value in found.items() if not _chooses(name)}


def _bare(name: str) -> str:
    """A name without the prefix that makes it a setting; empty for others."""
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), "")


def _chooses(name: str) -> bool:
    """Whether a name is a setting of ours, and more than data."""
    known = _bare(name) or next((ours for ours, theirs in ALIASES.items() if name in theirs), "")
    return bool(known) and known not in FROM_HERE


def sources() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Where variables come from, the first one first: what messages call it, and what it sets."""
    yield "environment", os.environ
    here, own = Path.cwd() / ".env", Path.home() / ".remuda" / ".env"
    if here.resolve() != own.resolve():
        yield str(here), _dotenv_here(str(here))
    yield str(own), _dotenv(str(own))


def variable(name: str, *, named: bool = False) -> tuple[str, str]:
    """Value and origin of one environment variable, `.env` files included; two empty strings when unset.

    Args:
        name: of the variable.
        named: whether a flag or a document names it, so that it is data whatever it is called.
    """
    own = str(Path.home() / ".remuda" / ".env")
    for source, values in sources():
        if name in values and (named or source in ("environment", own) or (_bare(name) or name) in FROM_HERE):
            return values[name], f"{source} {name}"
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


def database_url(paths: StatePaths) -> str:
    """Where the state is: `REMUDA_DATABASE_URL`, else a SQLite file in the state directory."""
    return setting("DATABASE_URL") or str(paths.database)

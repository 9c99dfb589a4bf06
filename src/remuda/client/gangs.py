"""What faces do with gangs: plan, start, follow, look at their rounds. Runs in the user's process."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError, TimedOut
from remuda.base.ids import api_path
from remuda.client import ending, runs
from remuda.client.http import HostClient, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.client.runs import FollowedLine

INSTALL = "pip install 'remuda[gang]'"
_LEFT_S = 120.0
"""How long the ranks of a gang that has failed are waited for; the host ends them, whoever looks."""


def ended(name: str, client: HostClient | None = None) -> dict[str, Any]:
    """Wait until a gang has ended, and until nothing is left of the ranks that one which failed has let down."""
    host = client or connect()
    view = runs.ended([name], host)[0]
    if view["phase"] == "FAILED":
        with suppress(TimedOut):
            ending.wait_down(name, _LEFT_S, host)
    return view


def follow(name: str, client: HostClient | None = None) -> Iterator[FollowedLine]:
    """Output of all ranks over all of their attempts, each line with its rank, and what becomes of each of them.

    Ends when the gang has ended.
    """
    host = client or connect()
    yield from runs.follow_all(name, host)
    ended(name, host)


def rounds(target: str, run_id: str = "", client: HostClient | None = None) -> dict[str, Any]:
    """What the ranks have trained together so far.

    Args:
        target: name of a gang, or URL of a rendezvous.
        run_id: of what is trained, with a URL.
        client: of the host.

    Raises:
        InputError: it is no gang, or which run is meant is not said, or what reads a rendezvous is not installed.
        NotFound: there is no gang of that name.
    """
    from remuda.plan.gang import RENDEZVOUS, RUN_ID
    from remuda.plan.kinds import Kind

    url = target
    if "://" in target:
        if not run_id:
            raise InputError("a rendezvous may have several runs in it", hint="say which: --run-id ID", where="URL")
    else:
        view = (client or connect()).get(api_path(target))
        if view["kind"] != Kind.GANG:
            raise InputError(f"{target!r} is a {view['kind']}, which has no rounds", where="NAME")
        url, run_id = view["labels"][RENDEZVOUS], run_id or view["labels"][RUN_ID]
        if not url:
            raise InputError(f"the ranks of {target!r} do not meet, so it has no rounds", where="NAME")
    try:
        from remuda.gang.rounds import summary
    except ImportError as error:
        raise InputError(f"rounds cannot be read without numpy and obstore ({error})", hint=INSTALL) from error
    return summary(url, run_id).to_json()

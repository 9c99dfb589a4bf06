"""What faces do with swarms: bring up, wait. Runs in the user's process."""

from __future__ import annotations

import http.client
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict, RemudaError, TimedOut
from remuda.base.shell import show_command
from remuda.client import mirror
from remuda.client.ending import wait_down
from remuda.client.http import HostClient, connect
from remuda.wire import peer
from remuda.wire.child import HOST_MARK, PORT_MARK
from remuda.wire.report import without_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan

UP = frozenset({"RUNNING", "DEGRADED"})
_OVER = frozenset({"FAILED", "DONE", "STOPPING", "DOWN"})
_GPUS = "CUDA_VISIBLE_DEVICES"
_FAILED_DOWN_S = 60.0


def described(child: str, asked: Iterable[str]) -> str:
    """One task for eyes: where it listens, its GPUs, and its command with the variables that were asked for.

    Args:
        child: what its node program reads.
        asked: names of variables of the document.
    """
    spec = json.loads(child)
    env, port = spec["env"], spec["port"]
    facts = [f"port {port}" if spec["port_fixed"] else f"port {port} or the next that is free"] if port else []
    if gpus := env.get(_GPUS, ""):
        facts.append(f"GPUs {gpus}")
    facts += [f"port {name} {number}" for name, number in spec["ports"].items() if number]
    shown = {name: env[name] for name in (*asked, _GPUS) if name in env}
    head = [f"# {', '.join(facts)}"] if facts else []
    command = show_command(spec["argv"], shown).replace(PORT_MARK, str(port)).replace(HOST_MARK, spec["bind_host"])
    return "\n".join([*head, command])


def bring_up(planned: Plan, facts: Looked | None = None, client: HostClient | None = None) -> dict[str, Any]:
    """Hand a swarm or deployment to the host; returns its view at once.

    Raises:
        Conflict: another workload of that name is up, or the host asks another cluster.
        InputError: a secret is missing, or it would surely fail.
    """
    from remuda.client import submission
    from remuda.look import planning

    return submission.send_plans([planned], client, facts=facts or planning.facts_of(), repeats=True)[0]


def gist(reason: str) -> str:
    """A task's reason without the last line of its server's output, which is new all the time."""
    return without_log(reason)


def wait_up(
    name: str, limit_s: float, client: HostClient | None = None, *, ends_with: str = ""
) -> Iterator[dict[str, Any]]:
    """Views of a workload while it comes up; the last one is up, or was with `ends_with`.

    Args:
        name: of the workload.
        limit_s: seconds.
        client: of the host.
        ends_with: group that it ends with. Where that was begun it was up, and may be over before anybody looks.

    Raises:
        RemudaError: it failed, or is being taken down.
        Conflict: it is paused.
        TimedOut: it did not come up within `limit_s` seconds; it goes on trying.
    """
    host = client or connect()
    view: Mapping[str, Any] = {}
    for (view,) in mirror.wait(host, [name], limit_s=limit_s):
        yield dict(view)
        if view["phase"] in UP or (view["phase"] in _OVER and _was_begun(view, ends_with)):
            return
        if view["phase"] in _OVER:
            if view["phase"] == "FAILED":
                with suppress(TimedOut):
                    wait_down(name, _FAILED_DOWN_S, host)  # the host ends what is left of it, whoever looks
            raise RemudaError(
                f"{name} is {view['phase']}: {view['reason'] or 'it was taken down'}",
                hint=f"remuda explain {name}; remuda logs {name}",
            )
        if view.get("paused"):
            raise Conflict(
                f"{name} is paused: {view['ready']} of {view['wanted']} replicas are ready, and no other is started",
                hint=f"resume it: remuda unpause {name}",
            )
    raise TimedOut(
        f"{name} did not answer within {limit_s:.0f} s: {view['reason'] or view['phase']}",
        hint=f"it keeps trying: remuda status {name}; give up with remuda down {name}",
    )


def _was_begun(view: Mapping[str, Any], group: str) -> bool:
    return any(task["attempt"] and task["task"].partition("/")[0] == group for task in view["tasks"])


def http_status(view: Mapping[str, Any]) -> int:
    """Status of the endpoint's model list now; 0 for no answer, or where another user of this machine has its port."""
    host, _, port = view["endpoint"].removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection("127.0.0.1" if host == "0.0.0.0" else host, int(port), timeout=3)  # noqa: S104
    headers = {}
    try:
        if view["api_key_file"]:
            headers["Authorization"] = f"Bearer {Path(view['api_key_file']).read_text().strip()}"
        connection.connect()
        if peer.refusal(connection.sock):
            return 0
        connection.request("GET", "/v1/models", headers=headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()

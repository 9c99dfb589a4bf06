"""What faces do with swarms: plan, bring up, wait, take down. Runs in the user's process."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict, HostUnreachable, RemudaError, TimedOut
from remuda.base.ids import api_path
from remuda.base.paths import state_paths
from remuda.base.secrets import MASK, looks_secret
from remuda.base.shell import show_command
from remuda.control import again, planning, rundirs
from remuda.control.client import HostClient, connect
from remuda.control.ending import wait_down
from remuda.control.reach import check_cluster
from remuda.specs.load import assignment
from remuda.specs.resolve import Override
from remuda.wire import peer
from remuda.wire.child import HOST_MARK, PORT_MARK
from remuda.wire.report import without_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from remuda.backends.base import Rendered
    from remuda.control.planning import Planned
    from remuda.plan.model import Workload

UP = frozenset({"RUNNING", "DEGRADED"})
_OVER = frozenset({"FAILED", "DONE", "STOPPING", "DOWN"})
_LOOK_AGAIN_S = 0.1
_GPUS = "CUDA_VISIBLE_DEVICES"
_FAILED_DOWN_S = 60.0


def plan(
    file: Path | None,
    *,
    replicas: int | None = None,
    name: str = "",
    router: bool | None = None,
    settings: Sequence[str] = (),
) -> Planned:
    """Plan the swarm of a document, with what the command line says.

    Args:
        file: the document.
        replicas: `--replicas`.
        name: `--name`.
        router: `--reverse-proxy` or `--no-reverse-proxy`.
        settings: `KEY=VALUE` with dotted keys; values are read as YAML.

    Raises:
        InputError: something is wrong; says where.
    """
    overrides = [assignment(text) for text in settings]
    if replicas is not None:
        overrides.append(Override("replicas", replicas, "--replicas"))
    if name:
        overrides.append(Override("name", name, "--name"))
    if router is False:
        overrides.append(Override("router.type", "none", "--no-reverse-proxy"))
    planned = planning.plan_up(file, overrides, paths=state_paths())
    if router is True and planned.spec.router.type == "none":
        overrides.append(Override("router.type", "smg", "--reverse-proxy"))
        planned = planning.plan_up(file, overrides, paths=state_paths())
    return planned


def dry_run(planned: Planned) -> list[Rendered]:
    """What bringing it up would start, for eyes."""
    return rendered(planned.workload)


def rendered(workload: Workload) -> list[Rendered]:
    """What bringing a workload up would start, for eyes: values of variables whose names look secret are masked."""
    env = {name: value for group in workload.groups for name, value in group.command.env.items()}
    hidden = [json.dumps(value) for name, value in env.items() if value and looks_secret(name)]
    return [_masked(item, hidden) for item in planning.dry_run(workload, state_paths())]


def _masked(item: Rendered, hidden: Sequence[str]) -> Rendered:
    def masked(text: str) -> str:
        for value in hidden:
            text = text.replace(value, f'"{MASK}"')
        return text

    return replace(item, files={path: masked(text) for path, text in item.files.items()})


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
    argv = [word.replace(PORT_MARK, str(port)).replace(HOST_MARK, spec["bind_host"]) for word in spec["argv"]]
    shown = {name: env[name] for name in (*asked, _GPUS) if name in env}
    head = [f"# {', '.join(facts)}"] if facts else []
    return "\n".join([*head, show_command(argv, shown)])


def bring_up(planned: Planned, client: HostClient | None = None) -> dict[str, Any]:
    """Hand a planned swarm to the host; returns its view at once.

    Raises:
        Conflict: another workload of that name is up, or the host asks another cluster.
        InputError: a secret is missing, or it would surely fail on its cluster.
    """
    workload, is_sent = planned.workload, False
    try:
        planned.check(state_paths())
        host = client or connect()
        if not workload.is_here:
            check_cluster(host)
        files = {**workload.files, **planned.record()}
        delivered = planning.deliver_secrets(workload.model_copy(update={"files": files}))
        spec = json.dumps(planned.spec.model_dump(mode="json", exclude_none=True))
        is_sent = True
        view = again.post(host, "/workloads", {"workload": json.loads(delivered.model_dump_json()), "spec": spec})
    except RemudaError as error:
        if not (is_sent and isinstance(error, HostUnreachable)):  # which may have recorded it
            rundirs.discard(workload)
        raise
    if view["uid"] != workload.uid:  # it was up already
        rundirs.clear(workload)
    return dict(view)


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
    deadline = time.monotonic() + limit_s
    while True:
        view = again.get(host, api_path(name))
        yield view
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
                hint=f"let it go on: remuda unpause {name}",
            )
        if time.monotonic() > deadline:
            raise TimedOut(
                f"{name} did not answer within {limit_s:.0f} s: {view['reason'] or view['phase']}",
                hint=f"it keeps trying: remuda status {name}; give up with remuda down {name}",
            )
        time.sleep(_LOOK_AGAIN_S)


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

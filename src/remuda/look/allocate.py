"""What is chosen when a workload is accepted, because it must be unique on the machine: its port and its GPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.base import TaskKey
from remuda.backends.local.devices import assign, present_gpus
from remuda.base.errors import Conflict, InputError
from remuda.base.secrets import MASK, looks_secret
from remuda.base.text import brief
from remuda.enter import renamed
from remuda.look.ports import Reserved, choose_port
from remuda.plan.gang import RENDEZVOUS, RUN_ID
from remuda.plan.model import Group, Listen, Workload
from remuda.plan.relay import EVERYWHERE
from remuda.specs.bounds import too_many
from remuda.specs.reading.fields import dotted, leaves
from remuda.supervise.loop import all_ended
from remuda.supervise.model import LIVE
from remuda.supervise.summary import ENDED, front_group, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.plan.kinds import Kind
    from remuda.specs.reading.document import Path
    from remuda.supervise.model import Task, Want

_MOST_TOLD: Final = 4
"""Settings that differ, in one sentence."""
_FOUND = frozenset({"env", "gpus", "devices", "home", "python"})
"""What of a `place` was found or chosen where the command was typed, not asked for."""


def check_count(workload: Workload, group: str, count: int) -> None:
    """Refuse more tasks than a machine can carry, or anybody; a scheduler says itself how many it takes.

    Raises:
        InputError: there would be too many.
    """
    backend = workload.group(group).backend or workload.backend
    if refusal := too_many(repr(workload.name), group, count, backend):
        raise InputError(refusal[0], hint=refusal[1])


def check_replaceable(old: Want, tasks: Mapping[TaskKey, Task], kind: Kind, said: tuple[str, str] = ("", "")) -> None:
    """Refuse a new workload in the place of one that is up, or still ends.

    Args:
        old: of that name.
        tasks: of it.
        kind: of the new one.
        said: what the documents of both say, as JSON.

    Raises:
        Conflict: says what is up, and what differs.
    """
    name = old.workload.name
    if old.running and summarise(old, tasks).phase not in ("DONE", "FAILED", "STOPPED"):
        if old.workload.kind is not kind:
            raise Conflict(
                f"the name {name!r} is taken by a {old.workload.kind.value}, which is up",
                hint=f"give the {kind.value} a name of its own: {kind.traits.name_flag}",
            )
        up = f"{kind.value} {name!r} is up already"
        if kind.traits.is_always_new:
            hint = f"stop it first (remuda stop {name}), or give the new one a name of its own: --name"
            raise Conflict(up, hint=hint)
        hint, changed = f"take it down first (remuda down {name}), or choose another name", differences(*said)
        if "replicas" in changed:
            hint = f"for the replicas alone: remuda scale {name} {changed['replicas'].split()[-1]}; else {hint}"
        texts = [f"{key} {text}" for key, text in changed.items()]
        more = f", and {len(texts) - _MOST_TOLD} more" if len(texts) > _MOST_TOLD else ""
        told = f": {', '.join(texts[:_MOST_TOLD])}{more}" if texts else ""
        raise Conflict(f"{up}, with other settings{told}", hint=hint)
    if not all_ended(tasks.values()):
        raise Conflict(f"{name!r} still ends", hint=f"wait for that: remuda down {name}")


def differences(old: str, new: str) -> dict[str, str]:
    """What two documents say otherwise, by dotted key: `2 → 4`; what one of them does not say is `-`.

    Args:
        old: JSON; empty: nothing is known.
        new: JSON; empty: nothing is known.
    """
    if not old or not new:
        return {}
    before, after = (dict(leaves(_of_today(json.loads(text)))) for text in (old, new))
    return {
        dotted(path): f"{_shown(path, before)} → {_shown(path, after)}"
        for path in dict.fromkeys([*after, *before])
        if before.get(path) != after.get(path)
    }


def _of_today(document: dict[str, Any]) -> dict[str, Any]:
    """What an earlier version recorded, with defaults that came since; as it is where it is no document any more."""
    from remuda.specs.kinds import KINDS

    try:
        spec = KINDS[document["kind"]].model.model_validate(document)
    except (LookupError, ValueError):
        return document
    return spec.model_dump(mode="json", exclude_none=True)


def _shown(path: Path, said: Mapping[Path, Any]) -> str:
    value = said.get(path)
    if value is None:
        return "-"
    return MASK if looks_secret(str(path[-1])) else brief(str(value))


def is_same(old: Workload, new: Workload, said: tuple[str, str] = ("", "")) -> bool:
    """Whether two plans ask for the same, but for what is chosen anew each time.

    Records of earlier versions have no digest: what their documents say is compared, as JSON, else their plans.
    """
    if old.digest and new.digest:
        is_so = old.digest == new.digest
    else:
        has_said_all = bool(new.digest) and all(said)
        is_so = (has_said_all and not differences(*said)) or _essence(old) == _essence(new)
    return is_so and _may_have_port(old, new)


def _essence(workload: Workload) -> Mapping[str, object]:
    text = workload.model_dump_json(exclude={"uid", "labels", "spec_file", "folder", "files", "digest"})
    data: dict[str, Any] = json.loads(text if workload.kind.traits.is_always_new else text.replace(workload.uid, "UID"))
    data["place"] = {key: value for key, value in data["place"].items() if key not in _FOUND}
    if data["endpoint"] is not None:
        data["endpoint"] |= {"port": 0, "api_key": data["endpoint"]["api_key"] is not None}
        if data["endpoint"]["relay"]:
            data["endpoint"]["host"] = ""
    for group in data["groups"]:
        group["listen"] = None
        group["resources"].pop("mem_field")  # earlier versions do not record it
        group["command"]["argv"] = renamed(group["command"]["argv"])
        group["command"]["secret_env"] = sorted(group["command"]["secret_env"])
    return data


def _may_have_port(old: Workload, new: Workload) -> bool:
    """Whether the port that `old` has will do for `new`, which demands one only where the user named it."""
    if old.endpoint is None or new.endpoint is None:
        return old.endpoint is new.endpoint
    listen = front_group(new).listen
    if not new.endpoint.host:
        return new.endpoint.port == old.endpoint.port
    return listen is None or not listen.fixed or new.endpoint.port == old.endpoint.port


def devices_by_task(workload: Workload) -> dict[TaskKey, list[str]]:
    """GPU ids that were given to each task."""
    devices = workload.place.get("devices")
    if not isinstance(devices, dict):
        return {}
    return {
        TaskKey(workload.name, name, index): [str(device) for device in tasks[group.place_of(index)]]
        for name, tasks in devices.items()
        for group in (workload.group(name),)
        for index in group.slots(len(tasks))
    }


def with_devices(workload: Workload, taken: Mapping[str, str], counts: Mapping[str, int] | None = None) -> Workload:
    """Give GPUs to the tasks that have none yet; what a task has, it keeps.

    Args:
        workload: its `place` may name `gpus` to choose from, and has `devices` once some were given.
        taken: GPU id -> other workload that has it.
        counts: number of tasks by group, where it differs from the plan.

    Raises:
        Conflict: there are not enough.
    """
    given = workload.place.get("devices")
    kept: dict[str, list[list[str]]] = dict(given) if isinstance(given, dict) else {}
    wanted = {group.name: group.at_once((counts or {}).get(group.name, group.count)) for group in workload.groups}
    needs = {
        group.name: (max(0, wanted[group.name] - len(kept.get(group.name, []))), gpus)
        for group in workload.groups
        if (gpus := group.resources.gpus)
    }
    if not needs:
        return workload
    own = {device: workload.name for tasks in kept.values() for ids in tasks for device in ids}
    chosen = workload.place.get("gpus")
    present = [str(item) for item in chosen] if isinstance(chosen, list) else list(present_gpus())
    more = assign(needs, present, {**taken, **own}, workload.kind.traits.without_gpus)
    devices = {group: [*kept.get(group, []), *more.get(group, [])] for group in needs}
    return workload.model_copy(update={"place": {**workload.place, "devices": devices}})


def taken_gpus(wants: Iterable[tuple[Want, Mapping[TaskKey, Task]]]) -> dict[str, str]:
    """GPU id -> workload that has it; a task that is surplus, or of what is over, has its GPUs until it has ended.

    Args:
        wants: workloads with their tasks.
    """
    taken: dict[str, str] = {}
    for want, tasks in wants:
        given = devices_by_task(want.workload)
        is_over = bool(given) and summarise(want, tasks).phase in ENDED
        for key, devices in given.items():
            task = tasks.get(key)
            is_wanted = want.running and key.index in want.slots(key.group) and not is_over
            if is_wanted or (task is not None and task.phase in LIVE):
                taken |= dict.fromkeys(devices, want.workload.name)
    return taken


def with_free_devices(want: Want, taken: Mapping[str, str]) -> Want:
    """The same, with other GPUs where others have one of those that it had.

    Raises:
        Conflict: there are not enough.
    """
    had = {device for devices in devices_by_task(want.workload).values() for device in devices}
    if not had & taken.keys():
        return want
    place = {key: value for key, value in want.workload.place.items() if key != "devices"}
    bare = want.workload.model_copy(update={"place": place})
    counts = {group.name: want.planned(group.name) for group in bare.groups}
    return replace(want, workload=with_devices(bare, taken, counts))


def check_alone(gang: Workload, others: Iterable[tuple[Want, Mapping[TaskKey, Task]]]) -> None:
    """Refuse a gang that would meet where another one trains the same; what has no rendezvous meets nobody.

    Args:
        gang: that is to begin.
        others: other workloads with their tasks.

    Raises:
        Conflict: one of them does, or still ends.
    """
    for want, tasks in others if gang.labels.get(RENDEZVOUS) else ():
        meets = all(want.workload.labels.get(key) == gang.labels[key] for key in (RENDEZVOUS, RUN_ID))
        if meets and (summarise(want, tasks).phase not in ENDED or any(task.phase in LIVE for task in tasks.values())):
            run_id, url = gang.labels[RUN_ID], gang.labels[RENDEZVOUS]
            raise Conflict(
                f"the gang {want.workload.name!r} trains {run_id!r} at {url} now",
                hint=f"end it first (remuda down {want.workload.name}), or train another: -s run_id=OTHER",
            )


def with_port(workload: Workload, others: Sequence[Want], reserved: Reserved, address: str = "127.0.0.1") -> Workload:
    """Fix the port of the endpoint: of the relay, the router, or the only replica.

    Args:
        workload: as it was asked for.
        others: workloads that have their ports already.
        reserved: where the port is written down as this workload's.
        address: of this machine on the cluster's network, for a relay or router that listens there, too.

    Raises:
        Conflict: the port that the user asked for is taken.
    """
    endpoint = workload.endpoint
    if endpoint is None:
        return workload
    front = front_group(workload).name
    listen = front_group(workload).listen or Listen()
    used = {want.workload.endpoint.port: want.workload.name for want in others if want.workload.endpoint}
    with reserved.choosing():
        port = choose_port(listen, used, endpoint.host, reserved)
        reserved.take(workload.name, port)
    host = address if not workload.is_here and endpoint.host == EVERYWHERE else endpoint.host
    groups = tuple(_fixed(group, port) if group.name == front else group for group in workload.groups)
    return workload.model_copy(
        update={"groups": groups, "endpoint": endpoint.model_copy(update={"port": port, "host": host})}
    )


def _fixed(group: Group, port: int) -> Group:
    listen = group.listen or Listen()
    return group.model_copy(update={"listen": listen.model_copy(update={"port": port, "fixed": True})})

"""What of a run that is kept already may be changed, and the use case that changes it.

A setting is a field of the run's own document, so it is read, checked and planned like the one that was sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.base.errors import BackendUnreachable, Conflict, InputError
from remuda.base.text import did_you_mean
from remuda.base.units import show_value
from remuda.plan.model import Pool
from remuda.plan.placing.pools import find_pools
from remuda.plan.run import retries_of, with_settings
from remuda.specs.help import help_of
from remuda.specs.places import in_images
from remuda.specs.reading.load import build
from remuda.specs.reading.resolve import Override
from remuda.specs.run import ALIASES, RunSpec
from remuda.specs.strict import Plain
from remuda.views.workloads import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.host.service import Service
    from remuda.supervise.model import Want

NOW, NEXT = "now", "next attempt"
SETTABLE: Final[Mapping[str, str]] = {
    "max_retries": NOW, "heal_after": NOW, "quick_failure": NOW, "backoff_base": NOW, "backoff_max": NOW,
    "keep_alive": NOW, "heartbeat_grace": NOW, "kill_grace": NOW,
    "progress_stall": NEXT, "signal": NEXT, "time_limit": NEXT, "partitions": NEXT, "retry_per_partition": NEXT,
    "reset_to_preferred": NEXT, "hedge": NEXT, "mem": NEXT, "cpus_per_task": NEXT, "account": NEXT, "qos": NEXT,
    "constraint": NEXT, "reservation": NEXT, "exclude_nodes": NEXT, "node_list": NEXT,
    "blacklist_ttl": NEXT, "blacklist_limit": NEXT, "no_blacklist": NEXT,
}  # fmt: skip
"""Field -> when a change counts."""
SHEPHERDS: Final[Mapping[str, str]] = {
    "keep_alive_sec": "keep_alive", "heartbeat_grace_sec": "heartbeat_grace", "progress_stall_sec": "progress_stall",
    "backoff_base_sec": "backoff_base", "backoff_max_sec": "backoff_max", "blacklist_ttl_sec": "blacklist_ttl",
    "retry_per_partition": "retry_per_partition", "reset_to_preferred_sec": "reset_to_preferred",
    "partition_fallback": "partitions",
}  # fmt: skip
"""Names that Shepherd has for them."""
_PLACING = frozenset({"partitions", "time_limit", "mem", "cpus_per_task", "constraint"})
"""Fields on which depends where it may run."""


class SettingView(View):
    """One setting of a run."""

    key: str
    value: Any
    """As documents have it; durations in seconds."""
    counts: str
    """When a change counts: `now`, or with the `next attempt`."""
    meaning: str


@dataclass(frozen=True)
class _Change:
    """A run with other settings, before it is written down."""

    before: RunSpec
    after: RunSpec
    keys: tuple[str, ...]


def settings_of(service: Service, name: str) -> list[SettingView]:
    """What may be changed of a run, with its values now.

    Raises:
        NotFound: there is none of that name.
        InputError: it is no run.
    """
    spec = _spec_of(service, name)
    data = spec.model_dump(mode="json")
    if data["max_retries"] is None:  # what is built in depends on the mode
        data["max_retries"] = retries_of(service.known(name).workload)
    told = {key: help_of(RunSpec, key).partition("\n")[0] for key in SETTABLE}
    return [SettingView(key=key, value=data[key], counts=when, meaning=told[key]) for key, when in SETTABLE.items()]


async def change_settings(service: Service, name: str, changes: Mapping[str, str]) -> list[SettingView]:
    """Change settings of a run, all or none, and record what they were.

    Args:
        service: of the host.
        name: of the run.
        changes: key -> value as it is typed.

    Raises:
        NotFound: there is none of that name.
        InputError: it is no run, or a key or value is wrong.
        Conflict: it was replaced meanwhile.
    """
    uid = service.known(name).workload.uid
    wanted = _read(_spec_of(service, name), changes)
    pools = await _pools(service, name, wanted)
    want = service.known(name)
    if want.workload.uid != uid:
        raise Conflict(f"{name!r} was replaced by another run meanwhile", hint="look at it, and try again")
    change = _read(_spec_of(service, name), changes)  # as it is now: others may have changed it
    _write(service, want, change, pools)
    return [view for view in settings_of(service, name) if view.key in change.keys]


def _spec_of(service: Service, name: str) -> RunSpec:
    want = service.known(name)
    kind = want.workload.kind
    if not kind.traits.has_settings:
        hint = f"remuda {kind.traits.resized_by.format(name)} changes its size" if kind.traits.resized_by else ""
        raise InputError(f"{name!r} is a {kind.value}, and only runs have settings that can be changed", hint=hint)
    said = json.loads(service.journal.store.workload(name).spec or "{}")
    if not said:
        raise InputError(f"the document of {name!r} is not known, so nothing of it can be changed")
    # What is as built in was not asked for, and some values follow others that were not.
    fields = RunSpec.model_fields
    kept = {key: value for key, value in said.items() if key in fields and value != _plain(fields[key].default)}
    return RunSpec.model_validate(kept)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _read(spec: RunSpec, changes: Mapping[str, str]) -> _Change:
    """The document with other values.

    Raises:
        InputError: a key is unknown or fixed, or a value is wrong.
    """
    if not changes:
        raise InputError("nothing is to be changed", hint="write KEY=VALUE")
    keys = {_key(key): text for key, text in changes.items()}
    said = spec.model_dump(mode="json", exclude_unset=True)
    overrides = [Override(key, value, "the run") for key, value in said.items() if key not in keys]
    # Nothing after the sign: as if it had never been said.
    overrides += [Override(key, Plain(text), f"{key}={text}") for key, text in keys.items() if text]
    after = cast("RunSpec", build(None, overrides, expect="run").spec)
    return _Change(spec, after, tuple(keys))


def _key(text: str) -> str:
    key = text.strip().lower().replace("-", "_")
    key = SHEPHERDS.get(key) or ALIASES.get(key) or key
    if key in SETTABLE:
        return key
    if key in RunSpec.model_fields:
        raise InputError(f"`{key}` is fixed when a run is started", hint="stop it, and start it with another value")
    hint = did_you_mean(key, [*SETTABLE, *SHEPHERDS], f"known: {', '.join(sorted(SETTABLE))}")
    raise InputError(f"a run has no setting {text!r}", hint=hint)


async def _pools(service: Service, name: str, change: _Change) -> tuple[Pool, ...] | None:
    """Where its next attempt may run; None where that stays as it is."""
    workload = service.known(name).workload
    if not _PLACING.intersection(change.keys) or workload.is_here or in_images(workload.backend):
        return None
    try:
        cluster = await service.supervisor.backends[workload.backend].cluster()
    except BackendUnreachable as error:
        names = change.after.partitions
        if "partitions" in change.keys and not names:
            raise BackendUnreachable(
                f"the cluster does not answer, so no partition can be chosen: {error}", hint="name them: partitions=a,b"
            ) from error
        listed = tuple(Pool(name=item, place={"partition": item}) for item in names)
        return listed if "partitions" in change.keys else None
    return find_pools(change.after, cluster).pools


def _write(service: Service, want: Want, change: _Change, pools: tuple[Pool, ...] | None) -> None:
    workload = with_settings(want.workload, change.after, pools, service.clock.now(), keys=change.keys)
    note = f"set {'; '.join(_told(change, key) for key in change.keys)}"
    spec = json.dumps(change.after.model_dump(mode="json", exclude_none=True))
    service.amend(replace(want, workload=workload), note, plan=workload.model_dump_json(), spec=spec)


def _told(change: _Change, key: str) -> str:
    known = [getattr(spec, key) for spec in (change.before, change.after)]
    before, after = (show_value(one, none="what is built in", empty="what fits") for one in known)
    return f"{key} from {before} to {after}"

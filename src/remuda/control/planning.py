"""What every command does with a plan: make it, look what speaks against it, show it, hand it to the host.

Runs in the user's process. A dry run stops before the last: what it shows is the rendering that is sent.
"""

from __future__ import annotations

import json
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.slurm.arrays import batch_uid
from remuda.base.errors import HostUnreachable, InputError, RemudaError
from remuda.base.files import write_atomic
from remuda.base.ids import new_suffix
from remuda.base.paths import state_paths
from remuda.base.private import make_private
from remuda.base.settings import variable
from remuda.control import again, rundirs
from remuda.control.client import HostClient, connect
from remuda.control.kinds import SENT, SHOWN, kind_named, kind_of
from remuda.control.reach import check_cluster
from remuda.control.rendering import calls
from remuda.control.wiring import slurm_backend
from remuda.look.facts import Looked
from remuda.plan.compile import Finding, accept, secret_folder
from remuda.plan.front import CONTROL_KEY
from remuda.plan.model import Secret
from remuda.specs.document import Problem, fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.base.paths import StatePaths
    from remuda.plan.compile import Draft, Plan
    from remuda.plan.model import Group, Workload

_MOST_TOGETHER: Final = 1000
"""Runs in one array, where the cluster would take more: what Slurm takes if it is not told otherwise."""
_AT_ONCE: Final = 8
"""Workloads whose secrets are written at the same time."""


def facts_of(paths: StatePaths | None = None) -> Looked:
    """What this command finds out for its plans; nothing is asked yet."""
    paths = paths or state_paths()
    return Looked(paths, partial(slurm_backend, paths))


def plan(name: str, document: Any, facts: Looked, uid: str = "") -> Plan:
    """The plan of a document, accepted: it has a uid. Nothing is started or written.

    Args:
        name: of its kind.
        document: as that kind reads it.
        facts: of the command.
        uid: of the workload; empty: a random one.

    Raises:
        InputError: it cannot be planned, or its cluster cannot be asked for it; says where.
    """
    return plan_together(name, [document], facts, uid)[0]


def plan_together(name: str, documents: Sequence[Any], facts: Looked, uid: str = "") -> list[Plan]:
    """The plans of several documents of one command: their uids say which may be tasks of one array."""
    plans = [_compiled(name, document, facts) for document in documents]
    now, batch, number = time.time(), "", 0
    accepted = []
    for one in plans:
        uid = uid if uid and len(plans) == 1 else new_suffix(8)
        if len(plans) > 1 and not (one.workload.is_here or one.workload.is_array):
            batch, number = (batch, number + 1) if batch and number < _most_together(facts) else (uid, 1)
            uid = batch_uid(batch, number)
        accepted.append(replace(one, workload=accept(one.workload, uid, now)))
    _check_rendering(accepted, facts)
    return accepted


def _compiled(name: str, document: Any, facts: Looked) -> Plan:
    kind = kind_named(name)
    spec = getattr(document, "spec", None)
    try:
        return kind.compile(document, facts.context(gpus=spec is not None and kind.needs_gpus(spec)), facts)
    except InputError as error:
        raise _located(document, error) from error


def _located(document: Any, error: InputError) -> InputError:
    loaded = getattr(document, "loaded", None)
    return loaded.locate(error) if loaded is not None else error


def _most_together(facts: Looked) -> int:
    size = getattr(facts.asked, "array_size", 0)
    return min(_MOST_TOGETHER, size - 1) if size else _MOST_TOGETHER


def _check_rendering(plans: Sequence[Plan], facts: Looked) -> None:
    """What a cluster cannot be asked for is told now, not by a workload that was accepted and is given up.

    Plans that differ in nothing but script, name and arguments are rendered alike, so one of them tells for all.
    """
    seen: set[str] = set()
    for one in plans:
        place = json.dumps(one.workload.place, sort_keys=True, default=str)
        said = one.spec.model_dump_json(exclude={"script", "name", "args"}) if one.spec is not None else ""
        if one.workload.is_here or said + place in seen:
            continue
        seen.add(said + place)
        try:
            calls([one.workload], facts.paths)
        except InputError as error:
            raise _located(one.draft, error) from error


# --- checks ----------------------------------------------------------------------------------------------------------


def findings(one: Plan, facts: Looked, when: int) -> list[Finding]:
    """What speaks against a plan, and what its user should know.

    Args:
        one: accepted.
        facts: of the command.
        when: the checks of `control.kinds` up to this moment.
    """
    found: list[Finding] = []
    for check in kind_of(one).checks(when):
        try:
            found += check(one, facts)
        except InputError as error:
            path = tuple(error.where.split(".")) if error.where else ()
            found.append(Finding(path, error.message.removeprefix(f"{error.where}: "), hint=error.hint))
    return found


def problem(draft: Draft[Any] | None, finding: Finding) -> Problem:
    """A finding where the document says what it is about."""
    if draft is None:
        return Problem("", finding.sentence, finding.hint)
    return draft.loaded.problem(finding.path, finding.sentence, finding.hint)


def refuse(one: Plan, facts: Looked) -> None:
    """Let pass what nothing speaks against, on this machine and on its cluster.

    Raises:
        InputError: something would fail; names all of it, with its place.
    """
    if problems := [problem(one.draft, finding) for finding in findings(one, facts, SENT) if finding.fails]:
        raise fail(problems)


def look(plans: Sequence[Plan], facts: Looked, when: int = SHOWN) -> tuple[list[str], list[Problem]]:
    """What users should know of plans, each sentence once, and what speaks against them."""
    notes, problems = [note for one in plans for note in one.notes], []
    for one in plans:
        for finding in findings(one, facts, when):
            found = problem(one.draft, finding)
            if finding.fails:
                problems.append(found)
            elif when > SHOWN and found.where:
                notes.append(f"{found.where}: {found.message}")
            else:
                notes.append(found.message)
    return list(dict.fromkeys(notes)), problems


def line_of(problem: Problem) -> str:
    """A problem in one line, with its place and what to do."""
    first = f"{problem.where}: {problem.message}" if problem.where else problem.message
    return f"{first} ({problem.hint})" if problem.hint else first


# --- what is sent ----------------------------------------------------------------------------------------------------


def send(
    plans: Sequence[Plan], client: HostClient | None = None, *, facts: Looked | None = None, repeats: bool = False
) -> list[dict[str, Any]]:
    """Hand plans to the host, all or none; returns their views at once.

    Args:
        plans: accepted.
        client: of the host.
        facts: of the command; with them it is looked first what speaks against the plans. Without, there is nothing.
        repeats: one that is up already and asks for the same is the answer.

    Raises:
        Conflict: a workload of that name is up, or the host asks another cluster.
        InputError: a secret is missing, or it would surely fail.
    """
    is_sent, known = False, facts or facts_of()
    try:
        for one in plans if facts is not None else ():
            refuse(one, known)
        host = client or connect()
        if any(not one.workload.is_here for one in plans):
            check_cluster(host)
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, max(1, len(plans)))) as pool:
            items = list(pool.map(partial(deliver, facts=known), plans))
        is_sent = True
        if repeats:
            views = [again.post(host, "/workloads", items[0])]
        else:
            views = list(host.post("/workloads/batch", {"workloads": items}))
    except RemudaError as error:
        if not (is_sent and isinstance(error, HostUnreachable)):  # which may have recorded them
            for one in plans:
                rundirs.discard(one.workload)
        raise
    for one, view in zip(plans, views, strict=True):
        if view["uid"] != one.workload.uid:  # it was up already
            rundirs.clear(one.workload)
    return views


def deliver(one: Plan, facts: Looked) -> dict[str, Any]:
    """Write the secrets of a plan; what is sent to the host.

    Raises:
        InputError: one cannot be written, or is missing.
    """
    record = kind_of(one).record
    files = {**one.workload.files, **(record(one, facts) if record is not None else {})}
    workload = deliver_secrets(one.workload).model_copy(update={"files": files})
    spec = json.dumps(one.spec.model_dump(mode="json", exclude_none=True)) if one.spec is not None else ""
    return {"workload": json.loads(workload.model_dump_json()), "spec": spec}


def deliver_secrets(workload: Workload) -> Workload:
    """Put the secrets that are referred to by environment variable into files that the tasks can read.

    Returns:
        The workload, referring to the files.

    Raises:
        InputError: a variable is not set, or a file is missing.
    """
    address = workload.endpoint
    has_key = address is not None and address.api_key is not None
    if not has_key and not any(group.command.secret_env for group in workload.groups):
        return workload
    folder = Path(secret_folder(workload.run_dir, workload.uid))
    make_private(folder, below=Path(workload.run_dir).parent)
    write_atomic(folder / CONTROL_KEY, secrets.token_urlsafe(24), mode=0o600)

    def delivered(secret: Secret) -> Secret:
        if secret.file:
            if not Path(secret.file).expanduser().is_file():
                raise InputError(f"secret file {secret.file!r} does not exist")
            return Secret(file=str(Path(secret.file).expanduser().absolute()))
        value, _ = variable(secret.env, named=True)
        if not value:
            raise InputError(f"environment variable {secret.env} is not set, and a secret is read from it")
        path = folder / secret.env
        write_atomic(path, value, mode=0o600)
        return Secret(file=str(path))

    def of_group(group: Group) -> Group:
        secret_env = {name: delivered(secret) for name, secret in group.command.secret_env.items()}
        return group.model_copy(update={"command": group.command.model_copy(update={"secret_env": secret_env})})

    groups = tuple(of_group(group) for group in workload.groups)
    if address is not None and address.api_key is not None:
        address = address.model_copy(update={"api_key": delivered(address.api_key)})
    return workload.model_copy(update={"groups": groups, "endpoint": address})

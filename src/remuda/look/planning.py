"""From what a command says to plans, what speaks against them, and what is shown of them and handed over.

Runs in the host's planner, and in the user's process where no host is up.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.registry import slurm_backend
from remuda.backends.slurm.arrays import batch_uid
from remuda.base.disk.paths import state_paths
from remuda.base.errors import BackendUnreachable, InputError, to_json
from remuda.base.ids import new_suffix
from remuda.look import rendering
from remuda.look.facts import Looked
from remuda.look.kinds import ASKED, SENT, SHOWN, kind_named, kind_of, reader
from remuda.look.prices import price_of
from remuda.plan.compile import Finding, accept, refuse_secrets, secret_folder
from remuda.plan.model import Secret
from remuda.plan.placing.place import asked_partitions
from remuda.specs.backend import is_of_fleet
from remuda.specs.places import NO_MACHINE, is_here
from remuda.specs.reading.document import Problem, fail

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.base.disk.paths import StatePaths
    from remuda.look.kinds import Compiler
    from remuda.plan.compile import Draft, Plan
    from remuda.plan.model import Group, Workload

_MOST_TOGETHER: Final = 1000
"""Runs in one array, where the cluster would take more: what Slurm takes if it is not told otherwise."""


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
    plans = [compiled(name, document, facts) for document in documents]
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


def compiled(name: str, document: Any, facts: Looked, make: Compiler | None = None) -> Plan:
    """The plan of a document before it is accepted, as its kind makes it, or `make`; see `plan`."""
    kind = kind_named(name)
    spec = getattr(document, "spec", None)
    try:
        made = (make or kind.compile)(document, facts.context(gpus=spec is not None and kind.needs_gpus(spec)), facts)
        refuse_secrets(made.workload)
        return made
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
        shape = rendering.shape_of(one)
        if one.workload.is_here or shape in seen:
            continue
        seen.add(shape)
        try:
            rendering.calls([one.workload], facts)
        except InputError as error:
            raise _located(one.draft, error) from error


# --- checks ----------------------------------------------------------------------------------------------------------


def findings(one: Plan, facts: Looked, when: int) -> list[Finding]:
    """What speaks against a plan, and what its user should know.

    Args:
        one: accepted.
        facts: of the command.
        when: the checks of `look.kinds` up to this moment.

    Raises:
        BackendUnreachable: a cluster that must be asked before it is sent does not answer; for `preflight` a finding.
    """
    found: list[Finding] = []
    if when >= SENT and (none := [*_fleet(one, facts)]):
        return none
    for check in kind_of(one).checks(when):
        try:
            found += check(one, facts)
        except InputError as error:
            path = tuple(error.where.split(".")) if error.where else ()
            found.append(Finding(path, error.message.removeprefix(f"{error.where}: "), hint=error.hint))
        except BackendUnreachable as error:
            if when < ASKED:
                raise
            found.append(Finding((), error.message, hint=error.hint))
    return found


def _fleet(one: Plan, facts: Looked) -> Iterable[Finding]:
    """Who names a fleet means the Slurm of this host, and no other that its commands may reach."""
    said = one.draft.loaded.resolved.data.get("backend") if one.draft is not None else None
    if is_of_fleet(said) and not facts.paths.fleet_environment.exists():
        yield Finding(("backend",), "this host has no fleet", hint="start one: remuda host start --port 8090")
    elif is_of_fleet(said) and facts.context(gpus=False).is_alone:
        yield Finding(("backend",), NO_MACHINE[0], hint=NO_MACHINE[1])


def problem(draft: Draft[Any] | None, finding: Finding) -> Problem:
    """A finding where the document says what it is about."""
    if draft is None:
        return Problem("", finding.sentence, finding.hint)
    return draft.loaded.problem(finding.path, finding.sentence, finding.hint)


def refuse(one: Plan, facts: Looked) -> None:
    """Let pass what nothing speaks against, on this machine and on its cluster.

    Raises:
        InputError: something would fail; names all of it, with its place.
        BackendUnreachable: a cluster that must be asked does not answer.
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


# --- what is handed over ---------------------------------------------------------------------------------------------


def answer(kind: str, words: Mapping[str, Any], *, dry_run: bool = False, write: str = "") -> dict[str, Any]:
    """What `submission.ask` gives, of what the command line says.

    Raises:
        InputError: it cannot be planned; says where.
    """
    facts, read = facts_of(), reader(kind)
    try:
        signature(read).bind(facts, **words)
    except TypeError as error:
        raise InputError(f"a {kind} is not planned from that: {error}", where="words") from error
    return answered(read(facts, **words), facts, dry_run=dry_run, write=write)


def answered(
    plans: Sequence[Plan], facts: Looked | None = None, *, dry_run: bool = False, write: str = "", checked: bool = True
) -> dict[str, Any]:
    """Plans as `submission` describes them.

    Args:
        plans: accepted.
        facts: of the command.
        dry_run: they are shown, and not sent.
        write: folder for which their files are made.
        checked: look what speaks against them; else nothing is there to be looked for.

    Raises:
        InputError: a file that they need is missing.
    """
    facts, refused = facts or facts_of(), None
    notes, problems = look(plans, facts) if checked else ([], [])
    try:
        for one in plans if checked and not dry_run else ():
            refuse(one, facts)
    except (InputError, BackendUnreachable) as error:
        refused = to_json(error)
    files: dict[str, str] = {}
    for one in plans if write else ():
        if (record := kind_of(one).record) is not None:
            files.update(record(one, facts, write))
    found = [_handed(one, facts, is_sent=not dry_run and refused is None) for one in plans]
    tasks = rendering.shown([one.workload for one in plans], facts) if dry_run else ()
    return {
        "notes": notes, "findings": [problem.text for problem in problems], "refused": refused, "said": "",
        "files": files, "plans": found, "tasks": [
            {"token": item.token, "argv": list(item.argv), "env": dict(item.env), "files": dict(item.files)}
            for item in tasks
        ],
    }  # fmt: skip


def _handed(one: Plan, facts: Looked, *, is_sent: bool) -> dict[str, Any]:
    workload, spec = one.workload, one.spec
    named = {*getattr(spec, "env", ()), *(workload.groups[0].command.env if len(workload.groups) == 1 else ())}
    shown = {
        "name": workload.name, "kind": workload.kind.value, "backend": workload.backend, "uid": workload.uid,
        "pools": [[pool.name for pool in group.pools] for group in workload.groups], "asked": sorted(named),
        "spec": spec.model_dump(mode="json", exclude_none=True) if spec is not None else None,
        "groups": [_needs(group, one, None if is_sent else facts) for group in workload.groups],
        "wait_s": workload.endpoint.wait_s if workload.endpoint else 600.0, "ends_with": workload.ends_with or "",
    }  # fmt: skip
    if not is_sent:
        return {**shown, "secrets": [], "workload": None, "document": ""}
    workload, names = secrets_by_file(workload)
    record = kind_of(one).record
    files = {**workload.files, **(record(one, facts) if record is not None else {})}
    data = json.loads(workload.model_copy(update={"files": files}).model_dump_json())
    document = json.dumps(shown["spec"]) if spec is not None else ""
    return {**shown, "secrets": names, "workload": data, "document": document}


def _needs(group: Group, one: Plan, facts: Looked | None) -> dict[str, Any]:
    """What the tasks of a group ask for, each; for eyes (`facts`) with the price of a GPU where it is known."""
    workload, needs = one.workload, group.resources
    here, price = is_here(group.backend or workload.backend), None
    if facts is not None and needs.gpus and needs.time_limit_s:
        price = price_of(group, workload.place, facts, here=here, said=getattr(one.spec, "gpu_type", "") or "")
    return {
        "group": group.name, "tasks": group.count, "nodes": needs.nodes, "gpus": needs.gpus, "cpus": needs.cpus,
        "mem_bytes": needs.mem_bytes, "time_limit_s": needs.time_limit_s,
        "partitions": [] if here else [*asked_partitions(workload.place, group.pools)],
        **({"price": {"gpu": price.type, "hour": price.per_gpu_hour, "currency": price.currency}} if price else {}),
    }  # fmt: skip


def secrets_by_file(workload: Workload) -> tuple[Workload, list[str]]:
    """Refer to a file of the workload's own for each secret that is read from a variable.

    Returns:
        The workload, and the variables whose values have to be brought along.

    Raises:
        InputError: a file that the user names does not exist.
    """
    folder, names = Path(secret_folder(workload.run_dir, workload.uid)), dict[str, None]()

    def referred(secret: Secret) -> Secret:
        if secret.secret:
            return secret
        if not secret.file:
            names[secret.env] = None
            return Secret(file=str(folder / secret.env))
        path = Path(secret.file).expanduser()
        if path.parent != folder and not path.is_file():
            raise InputError(f"secret file {secret.file!r} does not exist")
        return Secret(file=str(path.absolute()))

    def of_group(group: Group) -> Group:
        secret_env = {name: referred(secret) for name, secret in group.command.secret_env.items()}
        return group.model_copy(update={"command": group.command.model_copy(update={"secret_env": secret_env})})

    groups, address = tuple(of_group(group) for group in workload.groups), workload.endpoint
    if address is not None and address.api_key is not None:
        address = address.model_copy(update={"api_key": referred(address.api_key)})
    return workload.model_copy(update={"groups": groups, "endpoint": address}), [*names]

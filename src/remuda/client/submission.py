"""Documents are handed to the host: it plans them, and takes what was planned. Loads nothing that planning needs.

Where no host is up, or one of another version or interpreter, the same function plans in the process of the command
(`planning.answer`). What it gives, and `POST /plans` with it:

    notes      what the user should know, a sentence each
    findings   what would fail, a line each
    refused    the error that is raised when it is sent; null where nothing speaks against it
    said       what the planner wrote to stderr
    files      of `write`: absolute path -> text
    plans      one for each workload: `name`, `kind`, `backend`, `uid`, `spec`, `pools`, `asked` (variables of the
               document), `groups` (what each of their tasks asks for; of a dry run the `price` of a GPU where it is
               known), `wait_s` and `ends_with` for who waits,
               `secrets` (variables whose values are handed over when it is sent), `workload` and `document` for
               `POST /workloads`
    tasks      of a dry run: what is started, one for those that one call starts together
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import HostUnreachable, InputError, from_json
from remuda.base.secrets import looks_secret
from remuda.base.settings import variable
from remuda.client import reconnect
from remuda.client.cluster_match import check_cluster
from remuda.client.http import HostClient, connect
from remuda.specs.places import is_here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan

PLAN_S: Final = 240.0
"""How long planning may take: some engines need a minute to print their help."""


def ask(kind: str, *, dry_run: bool = False, write: str = "", **words: Any) -> dict[str, Any]:
    """The plans of a document. Nothing is started or written.

    Args:
        kind: of `look.kinds.READERS`.
        dry_run: what would be started is shown, and nothing is looked for that only sending needs.
        write: folder for which the files of the plan are made.
        words: what the command line says, as that reader takes it.

    Raises:
        InputError: it cannot be planned; says where.
    """
    asked = {"kind": kind, "words": words, "dry_run": dry_run, "write": write}
    _check_names(asked)
    host = HostClient(timeout_s=PLAN_S)
    if host.is_up() and host.is_alike():
        try:
            return dict(host.post("/plans", {**asked, "caller": caller()}))
        except HostUnreachable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise
    from remuda.look import planning

    return planning.answer(**json.loads(json.dumps(asked)))


def _check_names(asked: Mapping[str, Any]) -> None:
    """See that there is a working directory, and that what is typed there can be recorded.

    Raises:
        InputError: it is gone, or a name is not UTF-8.
    """
    try:
        cwd = str(Path.cwd())
    except OSError as error:
        raise InputError("the working directory is gone", hint="type it in another: cd") from error
    try:
        json.dumps([cwd, asked], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        name = error.object[: error.start].rpartition('"')[2] + error.object[error.start :].partition('"')[0]
        sentence = f"'{name.encode(errors='replace').decode()}' is not valid UTF-8"
        raise InputError(sentence, hint="rename the file or directory") from error


def caller() -> dict[str, Any]:
    """Where a command is typed, without the values of its secrets."""
    env = {name: "" if looks_secret(name) else value for name, value in os.environ.items()}
    return {"cwd": str(Path.cwd()), "env": env}


def send(answer: Mapping[str, Any], client: HostClient | None = None, *, repeats: bool = False) -> list[dict[str, Any]]:
    """Hand what was planned to the host, all or none; returns the views at once.

    Args:
        answer: of `ask` or `planning.answered`.
        client: of the host.
        repeats: one that is up already and asks for the same is the answer.

    Raises:
        Conflict: a workload of that name is up, or the host asks another cluster.
        InputError: a secret is missing, or it would surely fail.
    """
    if answer["refused"] is not None:
        raise from_json(answer["refused"])
    bodies = [body(one) for one in answer["plans"]]
    host = client or connect()
    named = [one["backend"] for one in answer["plans"] if not _names_file(one["spec"] or {})]
    for backend in dict.fromkeys(name for name in named if not is_here(name)):
        check_cluster(host, backend)
    if repeats:
        return [reconnect.post(host, "/workloads", bodies[0])]
    return list(host.post("/workloads/batch", {"workloads": bodies}))


def _names_file(spec: Mapping[str, Any]) -> bool:
    """Whether a document says itself where its cluster is."""
    backend = spec.get("backend")
    return bool(spec.get("kubeconfig") or (isinstance(backend, dict) and backend.get("kubeconfig")))


def send_plans(
    plans: Sequence[Plan], client: HostClient | None = None, *, facts: Looked | None = None, repeats: bool = False
) -> list[dict[str, Any]]:
    """Hand plans of this process to the host; see `send`. Without `facts` nothing is looked for before."""
    from remuda.look import planning

    return send(planning.answered(plans, facts, checked=facts is not None), client, repeats=repeats)


def body(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What is posted of one plan, with the values of its secrets.

    Raises:
        InputError: one is not set.
    """
    secrets = {name: _value(name) for name in plan["secrets"]}
    return {"workload": plan["workload"], "spec": plan["document"], "secrets": secrets}


def _value(name: str) -> str:
    value, _ = variable(name, named=True)
    if not value:
        raise InputError(f"environment variable {name} is not set, and a secret is read from it")
    return value

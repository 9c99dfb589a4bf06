"""From what a user typed to a workload ready to be sent to the host. Runs in the user's process and environment."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.base import Rendered, Request, TaskKey, make_token
from remuda.base.errors import InputError
from remuda.base.files import write_atomic
from remuda.base.ids import new_suffix
from remuda.base.private import make_private
from remuda.base.settings import variable
from remuda.control import preflight, rundirs
from remuda.control.follow import CONTROL_KEY, secret_folder
from remuda.control.nodelist import settle
from remuda.control.settle import with_devices
from remuda.control.wiring import backends, slurm_backend
from remuda.look.caller import context
from remuda.look.engines import unknown_arguments
from remuda.plan.cluster import engine_python, of_nginx
from remuda.plan.derive import derive, name_base
from remuda.plan.identity import digest
from remuda.plan.model import Group, Secret, Workload
from remuda.plan.notes import notes
from remuda.plan.placement import MachineFacts
from remuda.plan.swarm import ROUTER, plan_front, plan_swarm
from remuda.serving.router import RouterSettings, router_named
from remuda.specs.load import Loaded, load_swarm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.backends.base import Backend
    from remuda.base.paths import StatePaths
    from remuda.plan.context import Context
    from remuda.specs.resolve import Override, Shown
    from remuda.specs.swarm import SwarmSpec


@dataclass(frozen=True)
class Planned:
    """A swarm as it would be brought up."""

    workload: Workload
    spec: SwarmSpec
    """Without gaps."""
    notes: tuple[str, ...]
    """What the user should know."""
    shown: tuple[Shown, ...]
    """Every value with its origin."""
    loaded: Loaded[SwarmSpec]
    """Knows where the document says what."""

    def record(self) -> dict[str, str]:
        """Files that say what was asked, beside those that its tasks need: none."""
        return {}

    def check(self, paths: StatePaths) -> None:
        """Look for what would make it fail on this machine, or its cluster, before anything is recorded.

        Raises:
            InputError: says what is wrong, and where.
        """
        try:
            replicas = self.workload.groups[0]
            if self.workload.is_here:
                preflight.check_files(self.spec, replicas.command.needs, paths.root)
                routers = [group.command for group in self.workload.groups if group.role.routes]
                preflight.check_here(self.spec, engine_python(self.spec, sys.executable), routers)
                return
            preflight.check_files(self.spec, replicas.command.needs, paths.root)
            preflight.check_engine(self.spec, engine_python(self.spec, sys.executable))
            check_calls(self.workload, paths)
        except InputError as error:
            raise self.loaded.locate(error) from error


def plan_up(
    file: str | Path | None, overrides: Sequence[Override] = (), *, paths: StatePaths, name: str = ""
) -> Planned:
    """Read a swarm's document and plan it for this machine. Nothing is started or written.

    Args:
        file: YAML or JSON; None when the overrides say all.
        overrides: from the command line; they win.
        paths: of the state directory.
        name: of the swarm, where the caller knows it; else the spec's, else one is made of the model.

    Raises:
        InputError: something is wrong with the document; says where.
    """
    return plan_loaded(load_swarm(file, overrides), paths=paths, name=name)


def plan_loaded(loaded: Loaded[SwarmSpec], *, paths: StatePaths, name: str = "") -> Planned:
    """The same from a document that was read already.

    Raises:
        InputError: something is wrong with the document; says where.
    """
    try:
        return _plan(loaded, name, paths, context(paths))
    except InputError as error:
        raise loaded.locate(error) from error


def _plan(loaded: Loaded[SwarmSpec], name: str, paths: StatePaths, caller: Context) -> Planned:
    facts = MachineFacts(gpus=caller.gpus, cpus=caller.cpus, cwd=caller.cwd)
    derived = derive(loaded.spec, facts)
    spec = derived.spec
    _check_model(spec)
    chosen = name or spec.name or f"{name_base(spec)}-{new_suffix()}"
    uid, run_dir = new_suffix(8), str(paths.workload(chosen))
    router = _router(loaded.spec, spec, secret_folder(run_dir, uid), caller.python)
    workload = plan_swarm(
        spec, name=chosen, uid=uid, run_dir=run_dir, python=caller.python, facts=facts, router=router
    )  # fmt: skip
    if loaded.spec.cwd is None and spec.engine != "command":
        workload = _without_modules_here(workload)
    # What this command may use, not what the host that was started elsewhere sees.
    found = caller.place if workload.is_here else caller.place_elsewhere
    place = {**found, **workload.place, "home": spec.home_directory or ""}
    workload = workload.model_copy(update={
        "place": place, "spec_file": loaded.file,
        "digest": digest(loaded.spec, cwd=caller.cwd, name=chosen, port=("backend", "endpoint", "port")),
        "endpoint": plan_front(loaded.spec, ROUTER if router else "").endpoint,
    })  # fmt: skip
    if not workload.is_here:
        widest = max(group.resources.nodes for group in workload.groups)
        settled = settle(dict(workload.place), widest, lambda: preflight.apart(slurm_backend(paths).cluster()))
        workload = workload.model_copy(update={"place": settled})
        # What Slurm cannot be asked for is told here, not by a swarm that was accepted and is given up.
        dry_run(workload, paths)
    python = engine_python(spec, caller.python)
    said = (*notes(spec, python), *unknown_arguments(spec, python, paths))
    if spec.home_directory and (told := rundirs.told_elsewhere(spec.home_directory, paths)):
        said = (*said, f"home_directory: {told}")
    return Planned(workload, spec, said, tuple(loaded.show(spec, derived.reasons)), loaded)


def _without_modules_here(workload: Workload) -> Workload:
    """An engine is started where the command was typed, for relative paths; its modules are not looked for there.

    Whoever names `cwd`, or other words to start, means what is in that directory. Ray's processes are left as they are.
    """

    def safe(group: Group) -> Group:
        if not group.command.cwd or group.spread is not None:
            return group
        env = {"PYTHONSAFEPATH": "1", **group.command.env}
        return group.model_copy(update={"command": group.command.model_copy(update={"env": env})})

    return workload.model_copy(update={"groups": tuple(safe(group) for group in workload.groups)})


def _check_model(spec: SwarmSpec) -> None:
    """A model that is surely a file, and is not there, would cost minutes of restarts.

    Raises:
        InputError: it is not there.
    """
    is_path = spec.model.startswith(("/", "./", "../")) or (spec.engine == "llamacpp" and not spec.image)
    if not spec.backend.is_here or spec.engine == "command" or not is_path:
        return
    path = Path(spec.cwd or ".") / spec.model
    if not path.exists():
        hint = "relative paths start at `cwd`, by default where the command was typed"
        raise InputError(f"there is no model {str(path)!r}", hint=hint, where="model")


def _router(said: SwarmSpec, spec: SwarmSpec, keys: Path, python: str) -> Group | None:
    """The group in front, rendered by the router itself; None: the only replica is the endpoint."""
    if spec.router.type == "none":
        return None
    front = plan_front(said, ROUTER)
    timeout_s, more = of_nginx(said)
    settings = RouterSettings(
        endpoint=front.endpoint,
        # A swarm of one may be scaled up, and its router stays: it gets the policy of several.
        replicas=max(2, spec.replicas),
        policy=spec.router.policy or "",
        group=ROUTER,
        control_key=Secret(file=str(keys / CONTROL_KEY)),
        public=front.listen.public,
        request_timeout_s=timeout_s or spec.router.request_timeout,
        python=python,
        log_level=spec.log_level,
        extra_args=(*more, *spec.router.args),
    )
    try:
        group = router_named(spec.router.type).group(settings)
    except InputError as error:
        raise InputError(error.message, hint=error.hint, where=error.where or "router.policy") from error
    return group.model_copy(update={"listen": front.listen, "resources": front.resources})


def dry_run(workload: Workload, paths: StatePaths) -> list[Rendered]:
    """What bringing it up would start: the same rendering that is sent, for the first attempt of every task.

    Tasks that one call starts together are one item, called as they are together.

    Raises:
        InputError: the backend cannot be asked for it.
    """
    return [call for calls in _calls(workload, backends(paths)).values() for call in calls]


def check_calls(workload: Workload, paths: StatePaths) -> None:
    """Ask its backends whether they would take it as it is rendered.

    Raises:
        InputError: one of them refuses it; `where` is the field that it speaks of.
    """
    known = backends(paths)
    for name, calls in _calls(workload, known).items():
        preflight.apart(known[name].check(calls))


def _calls(workload: Workload, known: Mapping[str, Backend]) -> dict[str, Sequence[Rendered]]:
    placed = with_devices(workload, {}) if workload.is_here else workload
    rendered: dict[str, list[Rendered]] = {}
    for group in placed.groups:
        name = group.backend or placed.backend
        for index in range(group.count):
            key = TaskKey(placed.name, group.name, index)
            request = Request(key, 1, make_token(key, 1, placed.uid), placed, group)
            rendered.setdefault(name, []).append(known[name].render(request))
    return {name: known[name].as_sent(items) for name, items in rendered.items()}


def deliver_secrets(workload: Workload) -> Workload:
    """Put the secrets that are referred to by environment variable into files that the tasks can read.

    Returns:
        The workload, referring to the files.

    Raises:
        InputError: a variable is not set, or a file is missing.
    """
    folder = secret_folder(workload.run_dir, workload.uid)
    make_private(folder, below=Path(workload.run_dir).parent)
    write_atomic(folder / CONTROL_KEY, secrets.token_urlsafe(24), mode=0o600)

    def deliver(secret: Secret) -> Secret:
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

    groups = tuple(_delivered(group, deliver) for group in workload.groups)
    address = workload.endpoint
    if address is not None and address.api_key is not None:
        address = address.model_copy(update={"api_key": deliver(address.api_key)})
    return workload.model_copy(update={"groups": groups, "endpoint": address})


def _delivered(group: Group, deliver: Callable[[Secret], Secret]) -> Group:
    secret_env = {name: deliver(secret) for name, secret in group.command.secret_env.items()}
    return group.model_copy(update={"command": group.command.model_copy(update={"secret_env": secret_env})})

"""From a request to the files and the `sbatch` call that submit it. Pure."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.base import Rendered, Request, Together, make_token, pack_token
from remuda.backends.container import Steps, in_image
from remuda.backends.rundir import OWN_LOCKS, allocation_dir, child_spec
from remuda.backends.slurm.arrays import BATCHES, array_index, array_name, batch_of
from remuda.backends.slurm.options import check_directives, check_words, joined_gres, names_gres
from remuda.backends.slurm.script import INDEX, env_text, script_text
from remuda.base.errors import InputError
from remuda.base.hostlist import compress, expand
from remuda.plan.placing.place import SlurmPlace, placed
from remuda.plan.placing.seats import on_fullest
from remuda.wire.crew import OF_SEATS, CrewSeat, CrewSpec
from remuda.wire.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.plan.model import Group, Resources
    from remuda.wire.child import ChildSpec

NODE_LOG, SCRIPT, ENV, RESTARTS, OUTPUT = "node.log", "job.sh", "env.sh", "restarts", "slurm.json"
CREW = "crew.json"
"""What the crew of a pack reads, in the pack's directory."""
#: Slurm sets these for the job; what the user's shell had of them is about another machine.
_SLURMS_OWN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
               "ZE_AFFINITY_MASK", "TMPDIR")  # fmt: skip
_NUMBER = re.compile(r"%(\d?)([Aa%])")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True)
class SlurmSite:
    """What the allocations of one state directory on one cluster have in common."""

    workloads: Path
    """Parent of the run directories, on a file system that the nodes see."""
    node_program: Path
    """The zipapp."""
    host_file: Path
    python: str = "python3"
    """Interpreter on the nodes that runs it (3.9 or newer), where the workload names none."""
    port_locks: str = field(default_factory=lambda: f"/tmp/remuda-ports-{os.getuid()}")  # noqa: S108 - made with 0700
    """Directory of lock files, local to each node."""
    carried_file: Path | None = None
    """There while nodes do not see this directory, so that allocations are carried to them."""

    @property
    def is_carried(self) -> bool:
        """Whether nodes have files of their own."""
        return self.carried_file is not None and self.carried_file.exists()


@dataclass(frozen=True)
class _Way:
    """How allocations are submitted: each alone, the tasks of a group as an array, or several runs as one."""

    name: str
    """Of the job."""
    token: str
    """What the script says that it is; `INDEX` in it is the index in the array."""
    shared: Path
    """Directory of the allocation, likewise."""
    script_dir: Path
    index: int | None = None
    """In the array; None: a job of its own."""
    program: str = "child"
    """What the node program is asked to be; its document is called like that."""


def render(request: Request, site: SlurmSite) -> Rendered:
    """Say what submits `request`.

    Raises:
        InputError: Slurm cannot be asked for it; says which value is wrong.
    """
    place = place_of(request)
    folder = allocation_dir(site.workloads, request.token)
    steps = Steps(request.token, _launcher(place, site), _first_node(request))
    group, files = in_image(request.group, folder, place.container, steps)
    request = replace(request, group=group)
    child, login_env = child_of(request, place, site, folder)
    files[str(folder / "child.json")] = child.to_json()
    if child.fence_file:
        files[child.fence_file] = json.dumps({"token": request.token}) + "\n"
    if login_env:
        files[str(folder / ENV)] = env_text(login_env)
    if _is_packed(request):
        return _of_pack(request, place, site, files, login_env)
    alone = _submitted(
        request, place, site, _Way(request.token, request.token, folder, folder), has_env=bool(login_env)
    )
    together = None
    if request.group.count > 1:
        argv, more = _submitted(request, place, site, _in_array(request, site), has_env=bool(login_env))
        together = Together(argv, {**files, **more})
    elif _may_share(request, place):
        together = _together(request, place, site, files, has_env=bool(login_env))
    return Rendered(request.token, alone[0], {**files, **alone[1]}, together=together)


def _is_packed(request: Request) -> bool:
    """Whether the task shares its job with others."""
    return request.workload.pack_of(request.group.name) is not None


def _first_node(request: Request) -> int | None:
    """Ordinal of the first node of a task in the job that it shares; None: it shares none."""
    pack, key = request.workload.pack_of(request.group.name), request.key
    mine = (seat.node for seat in pack.seats if (seat.group, seat.index) == (key.group, key.index)) if pack else ()
    return next(iter(mine), None)


def _of_pack(
    request: Request, place: SlurmPlace, site: SlurmSite, files: dict[str, str], login_env: dict[str, str]
) -> Rendered:
    """One task's part in the job of its pack, which is the same for all of them but for its own files."""
    pack, token = request.workload.pack, pack_token(request.token)
    assert pack is not None
    folder, groups = allocation_dir(site.workloads, token), {group.name: group for group in request.workload.groups}
    files.pop(str(allocation_dir(site.workloads, request.token) / ENV), None)
    seats = [
        CrewSeat(str(allocation_dir(site.workloads, make_token(key, request.attempt, request.workload.uid))),
                 seat.node, seat.place, seat.gpu, groups[seat.group].resources.gpus)
        for seat in pack.seats for key in (replace(request.key, group=seat.group, index=seat.index),)
    ]  # fmt: skip
    first = groups[pack.seats[0].group]
    crew = CrewSpec(token, str(folder), pack.nodes, str(site.host_file), list(_launcher(place, site)), seats,
                    meet=first.listen is None)  # fmt: skip
    files[str(folder / CREW)] = crew.to_json()
    if login_env:
        files[str(folder / ENV)] = env_text(login_env)
    # Slurm gives all nodes of a job alike.
    most = {name: on_fullest(pack, groups, partial(_need, name)) for name in ("gpus", "cpus", "mem_bytes")}
    of_node = first.resources.model_copy(update={**most, "nodes": pack.nodes})
    whole = replace(request, group=first.model_copy(update={"resources": of_node}))
    way = _Way(token, token, folder, folder, program="crew")
    argv, more = _submitted(whole, place, site, way, has_env=bool(login_env))
    return Rendered(request.token, argv, {**files, **more}, pack=token)


def _need(name: str, group: Group) -> int:
    return int(getattr(group.resources, name))


def _submitted(
    request: Request, place: SlurmPlace, site: SlurmSite, way: _Way, *, has_env: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The call, and the files that it needs: the script, and where the user wants the output."""
    place = _numbered(request, place, way) if request.group.indices else place
    path = way.script_dir / SCRIPT
    files = {str(path): _script(place, site, way, has_env=has_env)}
    if place.output or place.error:
        where = {"output": place.output, "error": place.error, "workdir": place.workdir or str(way.script_dir)}
        files[str(allocation_dir(site.workloads, request.token) / OUTPUT)] = json.dumps(where) + "\n"
    return _argv(request, place, way, path), files


def _numbered(request: Request, place: SlurmPlace, way: _Way) -> SlurmPlace:
    """The same with file names as the user of an array means them, whatever jobs its tasks are.

    `%A` is the workload's uid, so all attempts of a task write to one file.
    """

    def told(match: re.Match[str]) -> str:
        if match[2] == "a" and way.index is None:  # no Slurm knows it
            return str(request.key.index).zfill(int(match[1] or 0))
        return request.workload.uid if match[2] == "A" else match[0]

    return place.model_copy(update={name: _NUMBER.sub(told, getattr(place, name)) for name in ("output", "error")})


def _in_array(request: Request, site: SlurmSite) -> _Way:
    """As a task of the array of its group."""
    shared = _with_index(request, site)
    script_dir = Path(str(shared).replace(INDEX, "a"))
    return _Way(array_name(request.token), _shared_token(request), shared, script_dir, request.key.index)


def _may_share(request: Request, place: SlurmPlace) -> bool:
    """Whether a run may be a task of an array: nothing that it asks for means something else there.

    File names may be made of the job's name, mails are sent once for an array, and jobs may wait for others of their
    name.
    """
    if batch_of(request.workload.uid) is None or request.group.count != 1 or request.key.index:
        return False
    words = " ".join((*place.args, *place.directives, *place.preamble))
    return not (place.output or place.error or place.mail_user or "mail" in words or "singleton" in words)


def _together(
    request: Request, place: SlurmPlace, site: SlurmSite, files: Mapping[str, str], *, has_env: bool
) -> Together:
    """The same as a task of an array: all share one script, which finds what is each one's own by a link."""
    batch, index = batch_of(request.workload.uid) or ("", 0)
    script_dir = site.workloads / BATCHES / f"{batch}-{request.attempt}"
    way = _Way(array_name(request.token), "", script_dir / INDEX, script_dir, index)
    script = _script(place, site, way, has_env=has_env)
    # Runs of one command may differ in what their scripts load: then they share a directory, but no call.
    path = script_dir / f"job-{sha256(script.encode()).hexdigest()[:12]}.sh"
    link = (str(script_dir / str(array_index(request.token))), str(allocation_dir(site.workloads, request.token)))
    return Together(_argv(request, place, way, path), {**files, str(path): script}, link)


def _launcher(place: SlurmPlace, site: SlurmSite) -> tuple[str, ...]:
    """How the node program is called, without its arguments."""
    return (place.python or site.python, "-I", "-S", str(site.node_program))


def _script(place: SlurmPlace, site: SlurmSite, way: _Way, *, has_env: bool) -> str:
    return script_text(
        place,
        (*_launcher(place, site), way.program, str(way.shared / f"{way.program}.json")),
        token=way.token,
        array=way.index is not None,
        env_file=str(way.shared / ENV) if has_env else "",
        restarts_file=str(way.shared / RESTARTS) if place.requeue else "",
    )


def _argv(request: Request, place: SlurmPlace, way: _Way, script: Path) -> tuple[str, ...]:
    own_gres = _own_gres(request, place)
    # Of two that say the same the last counts, so what was joined comes after the user's own.
    again = (f"--gres={joined_gres(own_gres, place)}",) if own_gres and names_gres(place.args) else ()
    argv = ("sbatch", *_options(request, place), *place.args, *again, *_own(place, way))
    check_words(argv)
    return (*argv, str(script))


def argv_alone(request: Request, place: SlurmPlace, folder: Path, script: Path) -> tuple[str, ...]:
    """The call for an allocation that has a job of its own, and shares nothing."""
    return _argv(request, place, _Way(request.token, request.token, folder, folder), script)


def place_of(request: Request) -> SlurmPlace:
    """The workload's settings for Slurm, with what the pool that was chosen changes.

    Raises:
        InputError: an unknown setting, or pools that cannot be asked for in one job.
    """
    base = request.workload.place
    if not request.pools:
        return _typed(base, request)
    places = [
        _typed({**base, **pool.place, "partition": pool.place.get("partition") or pool.name}, request)
        for pool in request.pools
    ]
    first = places[0]
    for pool, other in zip(request.pools, places, strict=True):
        differs = [
            name
            for name in SlurmPlace.model_fields
            if name != "partition" and getattr(other, name) != getattr(first, name)
        ]
        if differs:
            raise InputError(
                f"pools {request.pools[0].name!r} and {pool.name!r} differ in {', '.join(differs)}, and Slurm can be "
                f"asked for several pools at once only when they differ in nothing but the partition",
                hint="switch hedging off, or give the pools the same settings",
            )
    return first.model_copy(update={"partition": ",".join(place.partition for place in places)})


def _typed(values: Mapping[str, object], request: Request) -> SlurmPlace:
    place = placed(SlurmPlace, values, request.workload.name)
    check_directives(place)
    return place


def child_of(request: Request, place: SlurmPlace, site: SlurmSite, folder: Path) -> tuple[ChildSpec, dict[str, str]]:
    """The child document, and what of the user's environment the job script sets before it loads modules.

    Modules and preambles put their directories before the user's; so they must come after the user's, and the child
    document, which is applied last, must not set them again.
    """
    kept = {
        name: value for name, value in place.env.items() if name not in _SLURMS_OWN and not name.startswith("SLURM_")
        and not (request.group.listen is None and _is_packed(request) and name in OF_SEATS)
    }  # fmt: skip
    early = (
        {name: value for name, value in kept.items() if _NAME.match(name)} if place.modules or place.preamble else {}
    )
    late = {name: text for name, text in kept.items() if name not in early}
    listen = request.group.listen
    child = child_spec(
        request,
        folder,
        env=late | dict(request.group.command.env),
        bind_host="0.0.0.0" if listen else "127.0.0.1",  # noqa: S104 - other nodes must reach it
        host_file=str(site.host_file),
        port_locks=site.port_locks,
        port_locks_own=str(site.workloads.parent / OWN_LOCKS),
    )
    if listen is None and not child.named_ports():
        child = replace(child, port_locks="", port_locks_own="")
    if child.watch is not None and (place.output or place.error):
        child = replace(child, watch=replace(child.watch, tee=True))
    if child.spread is not None:
        launcher = list(_launcher(place, site))
        child = replace(child, spread=replace(child.spread, launcher=launcher, first=_first_node(request) or 0))
    if child.watch is not None and child.spread is None and not _is_packed(request):
        child = replace(child, guard=Guard(launcher=list(_launcher(place, site))))
    if place.log_directory:
        child = replace(child, copy_to=f"{place.log_directory}/{_log_name(request)}")
    if not child.cwd and place.workdir:
        child = replace(child, cwd=place.workdir)
    return child, early


def _log_name(request: Request) -> str:
    key = request.key
    return f"{key.workload}/{key.group}-{key.index}.{request.attempt}.log"


def _options(request: Request, place: SlurmPlace) -> Iterator[str]:
    """What the workload asks for; the user's own words may change it."""
    resources, watch = request.group.resources, request.group.watch
    yield from _named(place)
    if own := _own_gres(request, place):
        yield f"--gres={joined_gres(own, place)}"
    yield from _shares(resources)
    pack = request.workload.pack_of(request.group.name)
    ranks = request.group.command.ranks if pack is None else 0
    if resources.nodes > 1 or ranks or pack is not None:
        yield f"--nodes={resources.nodes}"
    if ranks:
        yield from (f"--ntasks={ranks}", f"--ntasks-per-node={ranks // resources.nodes}")
    if request.group.spread is not None or pack is not None:
        yield f"--ntasks-per-node={pack.tasks if pack is not None else 1}"
    if resources.time_limit_s:
        yield f"--time={duration(resources.time_limit_s)}"
    excluded = _excluded(request, place)
    if excluded:
        yield f"--exclude={excluded}"
    if watch is not None and watch.warn_before_s > 0:
        yield f"--signal=B:USR1@{min(65535, round(watch.warn_before_s))}"


def _shares(resources: Resources) -> Iterator[str]:
    """CPUs and memory."""
    if resources.cpus:
        yield f"--cpus-per-task={resources.cpus}"
    if resources.threads_per_core:
        yield f"--threads-per-core={resources.threads_per_core}"
    if resources.mem_bytes:
        yield f"--mem={-(-resources.mem_bytes // (1 << 20))}M"
    if resources.whole_nodes:
        yield from ("--exclusive", "--mem=0")


def _own_gres(request: Request, place: SlurmPlace) -> str:
    """Generic resources that the workload asks for."""
    return place.gres or _gpus(request.group.resources)


def _gpus(resources: Resources) -> str:
    """The GPUs as Slurm names them; empty for none."""
    kind = f"{resources.gpu_type}:" if resources.gpu_type else ""
    return f"gpu:{kind}{resources.gpus}" if resources.gpus else ""


def _named(place: SlurmPlace) -> Iterator[str]:
    """The options that are passed on as they are."""
    for name, value in (
        ("partition", place.partition),
        ("account", place.account),
        ("qos", place.qos),
        ("constraint", place.constraint),
        ("reservation", place.reservation),
        ("nodelist", place.node_list),
        ("mail-user", place.mail_user),
    ):
        if value:
            yield f"--{name}={value}"
    if place.mail_user and not any("--mail-type" in text for text in place.directives):
        yield "--mail-type=BEGIN,END,FAIL"


def _own(place: SlurmPlace, way: _Way) -> Iterator[str]:
    """What the supervisor relies on; nothing of the user's may change it."""
    yield f"--job-name={way.name}"
    yield "--parsable"
    yield "--hold"
    yield "--export=NONE"
    yield "--open-mode=append"
    yield "--requeue" if place.requeue else "--no-requeue"
    yield f"--chdir={place.workdir or way.script_dir}"
    if way.index is not None:
        yield f"--array={way.index}"
    if place.output or place.error:
        yield f"--output={place.output or _pattern(way.shared)}"
        if place.error:
            yield f"--error={place.error}"
    else:
        yield f"--output={_pattern(way.shared)}"


def _pattern(folder: Path) -> str:
    """A path as Slurm's own pattern for file names: verbatim, but for the task's index."""
    return str(folder / NODE_LOG).replace("%", "%%").replace(INDEX, "%a")


def _with_index(request: Request, site: SlurmSite) -> Path:
    """The allocation's directory with `INDEX` in place of the task's index."""
    folder = allocation_dir(site.workloads, request.token)
    return folder.parent.parent / f"{request.key.group}-{INDEX}" / folder.name


def _shared_token(request: Request) -> str:
    key = replace(request.key, index=0)
    uid = request.workload.uid
    first = make_token(key, request.attempt, uid)
    head, _, tail = first.rpartition(f".0.{request.attempt}.{uid}")
    return f"{head}.{INDEX}.{request.attempt}.{uid}{tail}"


def _excluded(request: Request, place: SlurmPlace) -> str:
    try:
        own = expand(place.exclude_nodes) if place.exclude_nodes else ()
    except InputError as error:
        raise InputError(f"place.exclude_nodes: {error.message}", hint=error.hint) from error
    return compress([*own, *request.exclude_nodes])


def duration(seconds: float) -> str:
    """`D-HH:MM:SS` or `HH:MM:SS`, as sbatch's `--time` takes it; at least a second."""
    total = max(1, round(seconds))
    days, rest = divmod(total, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock

"""The HTTP API under `/api/v1`; its OpenAPI document is at `/api/v1/openapi.json`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, StrictInt
from starlette.routing import compile_path

from remuda import __version__
from remuda.backends.base import Log
from remuda.base.errors import Conflict, InputError, NotFound, Rejected, RemudaError, TimedOut, Unavailable, to_json
from remuda.host.accept import accept, with_secrets
from remuda.host.board import Board
from remuda.host.faults import ErrorBoundary
from remuda.host.feed import BoardFeed
from remuda.host.fleet.fleet import Fleet
from remuda.host.fleet.routes import add_fleet
from remuda.host.nodes import Nodes
from remuda.host.nodes_api import add_nodes
from remuda.host.orphan_scan import EndingView, StrayView
from remuda.host.planner import Planner
from remuda.host.reconcilers.campaign_bodies import CampaignBody
from remuda.host.reconcilers.campaigns import Campaigns
from remuda.host.reconcilers.job_rows import JobKeeper
from remuda.host.reports import ReportServer
from remuda.host.service import NewWorkload, Service, Verb
from remuda.host.settings import SettingView, change_settings, settings_of
from remuda.host.stream_api import add_stream
from remuda.plan.model import Workload
from remuda.specs.help import describe
from remuda.specs.places import FLEET, planned_as
from remuda.store import ops
from remuda.views.unknown_allocs import note
from remuda.views.workloads import ExplainView, HostView, LineView, View, WorkloadView
from remuda.wire.fields import alike
from remuda.wire.place import PLACE, Place, marked

_STATUS: dict[type[RemudaError], int] = {
    InputError: 422, NotFound: 404, Conflict: 409, Rejected: 400, Unavailable: 503, TimedOut: 504,
}  # fmt: skip


class CreateBody(BaseModel):
    """A workload to bring up."""

    workload: Workload
    spec: str = ""
    """What the user wrote, resolved; kept for `describe`."""
    secrets: dict[str, str] = {}
    """Variable -> value, of those that the plan needs; only files of mode 0600 below the run directory hold them."""


class StartBody(CreateBody):
    """One of several workloads."""

    running: bool = True
    """False: it is recorded, and stays down."""
    paused: bool = False
    note: str = "brought up"
    """First line of its story."""


class BatchBody(BaseModel):
    """Workloads to bring up, all or none."""

    workloads: list[StartBody]


class CallerBody(BaseModel):
    """Where a command was typed."""

    cwd: str
    env: dict[str, Any]
    """Its environment; the values of secrets are left out."""


class PlanBody(BaseModel):
    """What a command says of a document."""

    kind: str
    """swarm, serve, run, gang or deployment."""
    words: dict[str, Any] = {}
    """Its file, flags and settings."""
    dry_run: bool = False
    """The answer has what would be started, and nothing that could be sent."""
    write: str = ""
    """Folder for which the plan's files are made."""
    caller: CallerBody


class NamesBody(BaseModel):
    """Workloads that there are."""

    names: list[str]
    uids: dict[str, str] = {}
    """By name: only of that one, and of no other that has its name by now."""


class EndingsBody(NamesBody):
    """Workloads that are to end."""

    swept: bool = False
    """Ask backends what is left of those that are down, and end it, although others still end."""
    told: bool = True
    """Tell of those that still end, too, and not only of those that are down."""
    wait_s: float = 0.0
    """Answer when all are down, or after so long."""
    force: list[str] = []
    """Those of which what is left then is killed."""


class ScaleBody(BaseModel):
    """Another number of tasks."""

    replicas: StrictInt | None = None
    """Of the group that serves, where there is one only."""
    groups: dict[str, StrictInt] = {}
    """By name of the group."""


class SettingsBody(BaseModel):
    """Other settings of a run."""

    changes: dict[str, str]
    """Key -> value, as it is typed; empty: as if it had never been said."""


class BackupBody(BaseModel):
    """Where the copy goes."""

    to: str


class PruneBody(BaseModel):
    """What may be forgotten."""

    before: float
    """Seconds since the epoch."""


class LateRoute(APIRoute):
    """A route that is read when it is first called: to read all of them is most of what a host does when it starts."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **said: Any) -> None:
        self.path, self.endpoint, self.methods, self._said = path, endpoint, {*said["methods"]}, said
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)

    def __getattr__(self, name: str) -> Any:
        """What reading it comes to; until then it has what finds it."""
        if "_said" not in self.__dict__:
            raise AttributeError(name)
        super().__init__(self.path, self.endpoint, **self.__dict__.pop("_said"))
        return getattr(self, name)


class App:
    """The API's routes over one service."""

    def __init__(
        self, service: Service, reports: ReportServer, facts: dict[str, Any], stop: Callable[[], None], jobs: JobKeeper,
        campaigns: Campaigns, fleet: Fleet,
    ) -> None:  # fmt: skip
        self.service, self.jobs, self.campaigns, self.fleet = service, jobs, campaigns, fleet
        self.reports, self.facts, self.stop = reports, facts, stop
        self.planner = Planner(str(service.paths.root))
        self.feed = BoardFeed(Board(service), service.journal.fence, service.clock.now, service.lines)

    def make(self) -> FastAPI:
        """The ASGI application."""
        app = FastAPI(title="remuda host", version=__version__, openapi_url="/api/v1/openapi.json",
                      docs_url=None, redoc_url=None, dependencies=[Depends(self._meant)])  # fmt: skip
        app.add_middleware(ErrorBoundary, log=self.service.paths.host_log)
        app.add_exception_handler(RemudaError, _answer_error)
        app.add_exception_handler(RequestValidationError, _answer_invalid)
        router = app.router
        router.prefix, router.route_class = "/api/v1", LateRoute
        self._add_host(router)
        self._add_workloads(router)
        add_nodes(router, Nodes.of(self.service, self.fleet.said))
        add_fleet(router, self.fleet, partial(self.service.supervisor.look, planned_as(FLEET)))
        add_stream(router, self.feed)
        app.openapi = self._document  # type: ignore[method-assign]
        return app

    @cache  # noqa: B019 - a host has one
    def _document(self) -> dict[str, Any]:
        """Of routes that are read anew: those that were called know no help texts."""
        for model in View.__subclasses__():
            describe(model)
        return FastAPI.openapi(self.make())

    async def _meant(self, request: Request) -> None:
        """With `uid=UID` a call is about that workload alone, and about no other that has its name by now."""
        if uid := request.query_params.get("uid"):
            self.service.check_meant({request.path_params.get("name", ""): uid})

    def _add_host(self, router: APIRouter) -> None:
        store = self.service.journal.store

        @router.get("/host", summary="The host process")
        async def host() -> HostView:
            return HostView(
                **self.facts, version=__version__, python=sys.executable, fence=self.service.journal.fence,
                workloads=len(self.service.supervisor.wants), live_tasks=self.service.live_tasks(),
                reports=asdict(self.reports.counts), note=note(self.service.still_forgotten()),
                slurm_conf=os.environ.get("SLURM_CONF", ""), kubeconfig=os.environ.get("KUBECONFIG", ""),
                fleet=self.fleet.view(),
            )  # fmt: skip

        @router.post("/host/stop", summary="End the host; workloads go on running and the next host adopts them")
        async def stop() -> dict[str, int]:
            self.stop()
            return {"live_tasks": self.service.live_tasks()}

        @router.get("/database", summary="State of the database")
        async def database() -> dict[str, Any]:
            return asdict(ops.status(store))

        @router.post("/database/backup", summary="Copy the database while it is in use")
        async def backup(body: BackupBody) -> dict[str, Any]:
            size = await asyncio.to_thread(ops.backup, store, Path(body.to))
            return {"to": body.to, "size_bytes": size}

        @router.post("/database/prune", summary="Forget old stories, and workloads that have long been down")
        async def prune(body: PruneBody) -> dict[str, Any]:
            more = {"jobs": await self.jobs.prune(body.before), "campaigns": self.campaigns.prune(body.before)}
            return asdict(self.service.prune(body.before)) | more

    def _add_workloads(self, router: APIRouter) -> None:
        service = self.service

        @router.get("/workloads", summary="All workloads")
        async def workloads(kind: str = "", everything: bool = False) -> list[WorkloadView]:
            return service.workloads(kind, everything=everything)

        @router.post("/plans", summary="Plan what a command says of a document; nothing is started or written")
        async def plans(body: PlanBody) -> Response:
            return Response(await self.planner.plan(body.model_dump()), media_type="application/json")

        @router.post("/workloads", summary="Bring a workload up", status_code=201)
        async def create(body: CreateBody) -> WorkloadView:
            start = NewWorkload(with_secrets(body.workload, body.secrets), body.spec)
            return (await accept(service, [start], again=True))[0]

        @router.post("/workloads/batch", summary="Bring workloads up, all or none", status_code=201)
        async def create_many(body: BatchBody) -> list[WorkloadView]:
            taken = [(item, with_secrets(item.workload, item.secrets)) for item in body.workloads]
            starts = [NewWorkload(**alike(NewWorkload, item) | {"workload": workload}) for item, workload in taken]
            return await accept(service, starts)

        @router.get("/workloads/{name}", summary="One workload with its tasks")
        async def workload(name: str, fresh: bool = False) -> WorkloadView:
            return await service.fresh_view(name) if fresh else service.view(name)

        @router.get("/workloads/{name}/spec", summary="What the user wrote, and the plan made of it")
        async def spec(name: str) -> dict[str, Any]:
            return service.spec(name)

        @router.delete("/workloads/{name}", summary="Forget a workload that is down; a folder that is not ours is left")
        async def remove(name: str) -> dict[str, str]:
            return {"left": service.remove(name)}

        @router.get("/jobs", summary="All jobs; one by its id, or by the name that the id was made of")
        async def jobs(name: str = "", brief: bool = False) -> Response:
            return Response(await self.jobs.answer(name, brief=brief), media_type="application/json")

        self._add_several(router)
        self._add_intents(router)
        self._add_stories(router)

    def _add_several(self, router: APIRouter) -> None:
        service = self.service

        @router.post("/workloads/batch/ending", summary="Shutdown progress of several workloads; ends leftovers")
        async def endings(body: EndingsBody) -> list[EndingView]:
            service.check_meant(body.uids)
            return await service.endings(**body.model_dump(exclude={"uids"}))

        @router.post("/workloads/batch/{verb}", summary="Take down, restart, pause or unpause several workloads")
        async def change_many(verb: Verb, body: NamesBody, brief: bool = False) -> list[WorkloadView]:
            service.check_meant(body.uids)
            if brief and verb == "down":
                service.take_down(body.names)
                return []
            return service.change_many(verb, body.names)

        @router.post("/campaigns", summary="Bring workloads up, so many at once, until each has done its job")
        async def begin(body: CampaignBody) -> dict[str, Any]:
            return await self.campaigns.begin(body)

        @router.get("/campaigns", summary="All campaigns, or those of a kind: pools, sweeps")
        async def campaigns(kind: str = "") -> list[dict[str, Any]]:
            return self.campaigns.views(kind)

        @router.get("/campaigns/{name}", summary="A campaign and what has become of its rows")
        async def campaign(name: str, kind: str = "", points: bool = False) -> dict[str, Any]:
            return self.campaigns.view(name, kind, with_points=points)

        @router.post("/campaigns/{name}/cancel", summary="End what is left of a campaign")
        async def cancel(name: str, kind: str = "") -> dict[str, Any]:
            return await self.campaigns.cancel(name, kind)

    def _add_intents(self, router: APIRouter) -> None:
        service = self.service

        @router.post("/workloads/{name}/down", summary="Take a workload down")
        async def down(name: str) -> WorkloadView:
            return service.down(name)

        @router.post("/workloads/{name}/sweep", summary="End what is left of a workload that is down; what that was")
        async def sweep(name: str, force: bool = False) -> list[StrayView]:
            return await service.sweep(name, force=force)

        @router.post(
            "/workloads/{name}/restart",
            summary="Give what failed or ended a new attempt; begin a run, or a group, again",
        )
        async def restart(name: str, group: str = "") -> WorkloadView:
            return service.restart(name, group)

        @router.post("/workloads/{name}/pause", summary="Leave alone what runs, begin nothing new")
        async def pause(name: str) -> WorkloadView:
            return service.pause(name, paused=True)

        @router.post("/workloads/{name}/unpause", summary="Resume a paused workload")
        async def unpause(name: str) -> WorkloadView:
            return service.pause(name, paused=False)

        @router.get("/workloads/{name}/settings", summary="What may be changed of a run, with its values now")
        async def settings(name: str) -> list[SettingView]:
            return settings_of(service, name)

        @router.post("/workloads/{name}/settings", summary="Change settings of a run, all or none")
        async def change(name: str, body: SettingsBody) -> list[SettingView]:
            return await change_settings(service, name, body.changes)

        @router.post("/workloads/{name}/scale", summary="Change the number of replicas, or of tasks in groups")
        async def scale(name: str, body: ScaleBody) -> WorkloadView:
            return service.scale(name, body.groups | ({} if body.replicas is None else {"": body.replicas}))

    def _add_stories(self, router: APIRouter) -> None:
        service = self.service

        @router.get("/workloads/{name}/events", summary="The story of a workload, oldest line first")
        async def events(
            name: str, limit: Annotated[int, Query(ge=1, le=10000)] = 100, after: int | None = None,
            all_lives: bool = False,
        ) -> list[LineView]:  # fmt: skip
            return service.story(name, limit=limit, after=after, all_lives=all_lives)

        @router.get("/workloads/{name}/explain", summary="Why a workload is as it is")
        async def explain(name: str, all_lives: bool = False, task: str = "") -> ExplainView:
            return service.explain(name, all_lives=all_lives, task=task)

        @router.get("/workloads/{name}/logs", summary="Output of a task, as text", response_class=StreamingResponse)
        async def logs(
            name: str, task: str = "", follow: bool = False, tail: Annotated[int, Query(ge=0)] = 0,
            stderr: bool = False, attempt: Annotated[int, Query(ge=0)] = 0, marks: bool = False,
            after: Annotated[str, Query(pattern=PLACE)] = "",
        ) -> StreamingResponse:  # fmt: skip
            place = Place.read(after) if after else None
            log = service.logs(name, task, follow=follow, tail=tail, stderr=stderr, attempt=attempt, after=place)
            return StreamingResponse(_blocks(log, marks=marks), media_type="text/plain; charset=utf-8")


async def _blocks(log: Log, *, marks: bool) -> AsyncGenerator[bytes, None]:
    """Output, and with `marks` up to where each piece of it goes (`wire.place`)."""
    async with aclosing(log.blocks()) as blocks:
        async for block in blocks:
            if marks:
                yield marked(block, log.place())
            elif block:
                yield block


async def _answer_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RemudaError)
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return JSONResponse({"error": to_json(error)}, status_code=status)


async def _answer_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    message = f"{where}: {first['msg']}"
    return JSONResponse({"error": {"type": "InputError", "message": message, "hint": ""}}, status_code=422)

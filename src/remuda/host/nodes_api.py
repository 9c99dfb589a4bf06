"""The API's routes for nodes, GPUs and what speaks against nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel

from remuda.base.asker import asking
from remuda.host.nodes import BAN_TTL_S, Nodes
from remuda.views.nodes import BanView, EvidenceView, GpuView, NodeView, SmokeRecorded, SmokeResult


class BanBody(BaseModel):
    """A ban."""

    ttl_s: float = BAN_TTL_S
    """How long it lasts, seconds."""
    reason: str = ""
    force: bool = False
    """Do not ask the cluster whether it has the node."""


Backend = Annotated[str, Query(description="Name of the backend; empty: the cluster where there is one")]


def add_nodes(router: APIRouter, nodes: Nodes) -> None:
    """Add the routes."""

    @router.get("/gpus", summary="GPUs by pool and type: how many there are and how many are free")
    async def gpus(backend: Backend = "") -> list[GpuView]:
        return await nodes.gpus(backend)

    @router.get("/nodes", summary="Nodes with their state, and what speaks against them")
    async def all_nodes(backend: Backend = "", pool: str = "") -> list[NodeView]:
        return await nodes.nodes(backend, pool)

    @router.post("/nodes/tests", summary="Hold failed tests against their nodes, end evidence of earlier ones")
    async def tests(results: Annotated[list[SmokeResult], Body(embed=True)], backend: Backend = "") -> SmokeRecorded:
        return nodes.record_tests(results, backend, by=asking.get())

    @router.post("/nodes/{name}/ban", summary="Ban nodes; `name` may be a host list such as node[001-003]")
    async def ban(name: str, body: BanBody, backend: Backend = "") -> list[BanView]:
        return await nodes.ban_many(name, body.ttl_s, body.reason, backend, by=asking.get(), force=body.force)

    @router.delete("/nodes/{name}/ban", summary="End bans; the names of the nodes that were banned")
    async def unban(name: str, backend: Backend = "") -> list[str]:
        return nodes.unban(name, backend, by=asking.get())

    @router.delete("/nodes/{name}/evidence", summary="Delete bans, evidence and history of nodes that are gone")
    async def forget(name: str, backend: Backend = "") -> int:
        return nodes.forget(name, backend)

    @router.get("/nodes/{name}/history", summary="What was ever held against a node, oldest first")
    async def history(
        name: str, backend: Backend = "", limit: Annotated[int, Query(ge=1, le=10000)] = 1000
    ) -> list[EvidenceView]:
        return await nodes.history(name, backend, limit=limit)

"""What the host asks of the programs that start one replica on several nodes; a part of `ChildSpec`.

Python 3.9, standard library only: this file travels to nodes inside the zipapp.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: In the words of commands that span nodes, replaced where they are started: number of the node, 0 for the first.
RANK_MARK = "__REMUDA_RANK__"
#: Address of the first node, as the others reach it.
HEAD_MARK = "__REMUDA_HEAD__"
#: A port that was free on the first node: of Ray's head, or for the engine's own ranks to meet.
HEAD_PORT_MARK = "__REMUDA_HEAD_PORT__"
#: A second one: of Ray's dashboard.
DASHBOARD_MARK = "__REMUDA_DASHBOARD__"
#: Address of the node that the word is used on.
OWN_MARK = "__REMUDA_OWN__"
#: A directory of the node for temporary files, with a short path; removed at the end.
SCRATCH_MARK = "__REMUDA_SCRATCH__"
#: Seconds that a replica over several nodes has for its end beyond the server's own grace: Ray ends after the server.
EXTRA_GRACE_S = 10.0


@dataclass(frozen=True)
class NodeSpan:
    """One replica over several nodes, as a plan has it. Durations in seconds."""

    nodes: int
    member: list[str]
    """What each of the other nodes runs."""
    head: list[str] = field(default_factory=list)
    """What the first node runs before the server, and beside it; empty: nothing."""
    ask: list[str] = field(default_factory=list)
    """Prints how many nodes and GPUs there are, again and again; the server is started when they are enough."""
    gpus: int = 0
    """That must be there."""
    env: dict[str, str] = field(default_factory=dict)
    """More environment of the server."""
    first: int = 0
    """Ordinal of its first node in the job."""
    head_port: int = 0
    """Preferred; the next free one otherwise."""
    dashboard_port: int = 0
    cpus: int = 0
    """Of each node, for the members' step."""
    watch: bool = False
    """Go on asking while the server runs."""
    probe_timeout_s: float = 120.0
    status_grace_s: float = 10.0
    probe_interval_s: float = 30.0


@dataclass(frozen=True)
class Spread(NodeSpan):
    """The same for the node."""

    launcher: list[str] = field(default_factory=list)
    """How the node program is started on any of the nodes."""

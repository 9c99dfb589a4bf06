"""What `scontrol show node` and `scontrol show partition` print, as the nodes and pools of all backends. Pure."""

from __future__ import annotations

import re
from typing import Final

from remuda.backends.base import Node, PoolInfo
from remuda.backends.slurm.parsing.parse import read_duration
from remuda.base.errors import BackendUnreachable

_NO_NODES: Final = "No nodes in the system"
_BASE_USABLE: Final = frozenset({"idle", "allocated", "mixed", "completing", "planned"})
#: A node with one of these takes no new work until a person, or its own recovery, changes that.
_BARRED: Final = frozenset({
    "drain", "draining", "drained", "fail", "failing", "down", "error", "not_responding", "maintenance", "maint",
    "invalid_reg", "inval", "future", "unknown", "reboot_issued", "powering_down", "blocked", "external",
})  # fmt: skip
#: Of nodes that joined by themselves: how they came is not how they are.
_UNSAID: Final = frozenset({"dynamic_norm", "dynamic_future"})
#: What sinfo, and scontrol of old versions, hang on a state word.
_SYMBOLS: Final = {
    "*": "not_responding", "~": "powered_down", "#": "powering_up", "%": "powering_down", "$": "maintenance",
    "@": "reboot_requested", "!": "power_down", "-": "planned", "^": "reboot_issued",
}  # fmt: skip


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Read `scontrol show node -o -d`.

    Raises:
        BackendUnreachable: it is not that.
    """
    if text.strip() == _NO_NODES:
        return ()
    return tuple(_node(line) for line in text.splitlines() if line.strip())


def parse_partitions(text: str) -> tuple[PoolInfo, ...]:
    """Read `scontrol show partition -o`.

    Raises:
        BackendUnreachable: it is not that.
    """
    return tuple(_partition(line) for line in text.splitlines() if line.strip())


def read_node_state(raw: str) -> tuple[str, bool]:
    """`IDLE+DRAIN`, `DOWN*`, `MIXED+CLOUD` -> the words in lower case, and whether new work may start there."""
    words: list[str] = []
    for part in re.split(r"[+,]", raw.strip().lower()):
        word = part.rstrip("*~#%$@!-^")
        if word and word not in _UNSAID:
            words.append(word)
        words += [_SYMBOLS[symbol] for symbol in part[len(word) :]]
    usable = bool(words) and words[0] in _BASE_USABLE and not _BARRED.intersection(words)
    return "+".join(words), usable


def read_gpus(gres: str) -> tuple[int, str]:
    """`gpu:a100:4(S:0-1),shard:8`, `gpu:2(IDX:0-1)` -> number of GPUs, and their type if it is one."""
    total, types = 0, set()
    for part in re.split(r",(?![^()]*\))", gres):
        fields = re.sub(r"\(.*\)", "", part).split(":")
        if fields[0] != "gpu":
            continue
        count = fields[-1]
        total += int(count) if count.isdigit() else 1
        if len(fields) > 1 and not fields[1].isdigit():
            types.add(fields[1])
    return total, types.pop() if len(types) == 1 else ""


def _node(line: str) -> Node:
    if not line.startswith("NodeName="):
        raise BackendUnreachable(f"the answer of scontrol could not be read: {line[:120]!r}")
    # Reasons are free text and stand near the end.
    head, _, reason = line.partition(" Reason=")
    fields = _fields(head)
    state, usable = read_node_state(fields.get("State", ""))
    gpus, gpu_type = read_gpus(fields.get("Gres", ""))
    used = read_gpus(fields.get("GresUsed", ""))[0]
    if not used:
        used = _allocated_gpus(fields.get("AllocTRES", ""))
    cpus = _number(fields.get("CPUEfctv") or fields.get("CPUTot", ""))
    pools = fields.get("Partitions", "")
    features = fields.get("ActiveFeatures") or fields.get("AvailableFeatures", "")
    return Node(
        name=fields["NodeName"],
        state=state,
        usable=usable,
        pools=tuple(pools.split(",")) if pools and pools != "(null)" else (),
        reason=re.sub(r" \[[^\]]*\].*$", "", reason).strip() if reason else "",
        cpus=cpus,
        cpus_free=max(0, cpus - _number(fields.get("CPUAlloc", ""))) if usable else 0,
        mem_bytes=_number(fields.get("RealMemory", "")) * 1024 * 1024,
        gpus=gpus,
        gpus_free=max(0, gpus - used) if usable else 0,
        gpu_type=gpu_type,
        features=tuple(features.split(",")) if features and features != "(null)" else (),
    )


def _partition(line: str) -> PoolInfo:
    if not line.startswith("PartitionName="):
        raise BackendUnreachable(f"the answer of scontrol could not be read: {line[:120]!r}")
    fields = _fields(line)
    preempt = fields.get("PreemptMode", "")
    return PoolInfo(
        name=fields["PartitionName"],
        is_up=fields.get("State", "UP") == "UP",
        is_default=fields.get("Default", "NO") == "YES",
        max_time_s=read_duration(fields.get("MaxTime", "")),
        priority=_number(fields.get("PriorityTier", "")),
        preempt="" if preempt == "OFF" else preempt,
    )


def _fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(?:^| )([A-Za-z/:]+)=(\S*)", line))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _allocated_gpus(tres: str) -> int:
    match = re.search(r"(?:^|,)gres/gpu=(\d+)", tres)
    return int(match[1]) if match else 0


def parse_array_size(text: str) -> int:
    """`MaxArraySize` of what `scontrol show config` prints: indices of an array are below it; 0 where it is missing."""
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0

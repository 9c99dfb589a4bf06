"""`restart NAME GROUP`, as the user's process asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.errors import NotFound
from remuda.base.ids import api_path
from remuda.client.http import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.client.http import HostClient


def names_group(words: Sequence[str], client: HostClient | None = None) -> bool:
    """Whether the second of two words is a group of the first, or indices of that array, and no workload of its own.

    Raises:
        NotFound: there is no workload that the first names.
    """
    if len(words) != 2:
        return False
    host = client or connect()
    view = host.get(api_path(words[0]))
    is_index = "array" in view["labels"] and (words[1][:1].isdigit() or "," in words[1])
    if not is_index and words[1] not in {task["task"].partition("/")[0] for task in view["tasks"]}:
        return False
    try:
        host.get(api_path(words[1]))
    except NotFound:
        return True
    return False


def restart_group(name: str, group: str, client: HostClient | None = None) -> dict[str, Any]:
    """Begin again what runs in one group of a workload, or tasks of an array; its view.

    Raises:
        NotFound: there is no such workload or group.
        Conflict: it is down or paused.
    """
    return dict((client or connect()).post(api_path(name, "restart"), group=group))

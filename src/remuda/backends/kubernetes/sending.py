"""What is known only when an allocation is sent: its key, where the host is, and the values of its secrets."""

from __future__ import annotations

import copy
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from remuda.backends.kubernetes.render import HOST, KEY, KUEUE, OBJECTS, OF_SECRET, QUEUE, SEPARATOR
from remuda.backends.reportkey import report_key
from remuda.base.errors import BackendUnreachable, Rejected
from remuda.node.child.launch import SecretMissing, read_secret

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.backends.kubernetes.render import Doc, KubernetesSite


def reports_to(site: KubernetesSite) -> str:
    """What to tell of a pod that should have reported to the host and has not."""
    try:
        said = json.loads(site.host_file.read_text(encoding="utf-8"))
        where = f"{said['report_host']}:{said['report_port']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return (
        f"runs, and no report of it has come: pods do not reach the host at {where} (start it with REMUDA_REPORT_HOST, "
        f"an address of this machine that they reach, or in the cluster)"
    )


def letting_go(folder: Path) -> Doc:
    """The patch that lets the Job of an allocation start, which has its files there.

    Where it has a queue Kueue does that, and takes the queue's name only while the Job is suspended.
    """
    with suppress(OSError):
        job, _, _ = (folder / OBJECTS).read_text(encoding="utf-8").partition(SEPARATOR)
        if queue := json.loads(job)["metadata"]["annotations"].get(QUEUE):
            return {"metadata": {"labels": {KUEUE: queue}}}
    return {"spec": {"suspend": False}}


def with_secrets(secret: Doc, token: str, site: KubernetesSite) -> Doc:
    """A rendered Secret with all that it shall hold.

    Raises:
        Rejected: a value is not where the plan says.
        BackendUnreachable: the key cannot be made now.
    """
    filled = copy.deepcopy(secret)
    data = filled["stringData"]
    try:
        for name, told in data.items():
            if name.startswith(OF_SECRET):
                data[name] = read_secret(name.removeprefix(OF_SECRET), json.loads(told), os.environ)
        data[KEY] = report_key(site.workloads, token)
    except SecretMissing as error:
        raise Rejected(str(error)) from error
    except OSError as error:
        raise BackendUnreachable(f"the key of {token} cannot be made: {error}") from error
    with suppress(OSError):  # without it nothing is reported over the line
        data[HOST] = site.host_file.read_text(encoding="utf-8")
    return filled

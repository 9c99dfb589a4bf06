"""On a stand-in of Kubernetes: CPU and calls of one look at many ranks; a run from the command to its first line.

python benchmarks/bench_kubernetes.py [--ranks N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BenchHome, Figure, finish, until
from remuda.backends.base import Handle, Request, TaskKey, make_token
from remuda.backends.kubernetes.backend import KubernetesBackend
from remuda.backends.kubernetes.places import CLUSTER
from remuda.backends.kubernetes.render import KubernetesSite, objects_of
from remuda.node.zipapp import deflated
from remuda.plan.model import Command, Group, Kind, Role, Workload
from remuda.testing.kube import KubeBed
from remuda.testing.kube.objects import stamp

if TYPE_CHECKING:
    from remuda.testing.kube.objects import Doc

LOOK_MS, TIMES = 300.0, 5


def placed(bed: KubeBed, backend: KubernetesBackend, index: int, workloads: Path) -> Handle:
    """Put a rank that runs into the cluster as its server has it, without running it."""
    group = Group(name="rank", role=Role.RANK, count=1, command=Command(argv=("train",), image="reg/t:1"))
    workload = Workload(
        name="g", kind=Kind.GANG, uid="bench123", backend="kubernetes", groups=(group,), run_dir=str(workloads / "g")
    )
    key = TaskKey("g", "rank", index)
    rendered = backend.render(Request(key, 1, make_token(key, 1, "bench123"), workload, group))
    job, name = objects_of(rendered)[0], ""
    name = job["metadata"]["name"]
    made = {"uid": f"job-{index}", "creationTimestamp": stamp(time.time()), "namespace": "default"}
    job["metadata"] |= made
    job["spec"]["suspend"] = False
    job["status"] = {"active": 1, "ready": 1, "startTime": made["creationTimestamp"]}
    labels = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/job-completion-index": "0"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["uid"], "controller": True}
    running = {"name": "task", "ready": True, "state": {"running": {"startedAt": made["creationTimestamp"]}}}
    pod: Doc = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {**made, "uid": f"pod-{index}", "name": f"{name}-0-abcde", "ownerReferences": [owner],
                     "labels": {**job["spec"]["template"]["metadata"]["labels"], **labels}},
        "spec": {**job["spec"]["template"]["spec"], "nodeName": f"node-{index % 8}"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [running],
                   "startTime": made["creationTimestamp"],
                   "conditions": [{"type": one, "status": "True"} for one in ("PodScheduled", "Ready")]},
    }  # fmt: skip
    bed.objects.create(("jobs", "default", name), job)
    bed.objects.create(("pods", "default", str(pod["metadata"]["name"])), pod)
    folder = Path(backend.files.folder(rendered.token))
    folder.mkdir(parents=True)
    (folder / CLUSTER).write_text("{}")
    return Handle(rendered.token, name)


def stand_still(bed: KubeBed) -> None:
    """Let its controllers do nothing: what they would run is only listed."""
    for one in (bed.jobs, bed.nodes, bed.kubelet):
        setattr(one, "turn", lambda: None)  # noqa: B010 - a method that is replaced


async def look(ranks: int) -> list[Figure]:
    """CPU of this thread, and calls, of one look at so many ranks; and of one call for each."""
    with tempfile.TemporaryDirectory(prefix="rb", dir="/tmp") as root, KubeBed(Path(root) / "kube") as bed:
        stand_still(bed)
        workloads = Path(root) / "workloads"
        site = KubernetesSite(workloads, Path(root) / "host.json", deflated, "user@here")
        backend = KubernetesBackend(site, environ=bed.env())
        handles = [placed(bed, backend, index, workloads) for index in range(ranks)]
        one = await backend.observe(handles[:1])
        assert [seen.life.value for seen in one.values()] == ["running"], one
        spent, calls = [], 0
        for _ in range(TIMES):
            bed.troubles.asked.clear()
            begin = time.thread_time()
            seen = await backend.observe(handles)
            spent.append((time.thread_time() - begin) * 1000)
            calls = len(bed.troubles.asked)
            assert len(seen) == ranks
        client = backend._client(())  # noqa: SLF001 - the same client as the backend's
        begin = time.thread_time()
        for handle in handles[:200]:
            await client.read("jobs", handle.native)
        each = (time.thread_time() - begin) * 1000 * ranks / 200
        await backend.close()
    name = f"one look at {ranks:,} ranks"
    return [
        Figure(f"{name}: CPU", statistics.median(spent), "ms", LOOK_MS, each, "a read of each Job"),
        Figure(f"{name}: calls", calls, "", ranks / 200, ranks, "a read of each Job"),
    ]


def first_line(home: BenchHome, name: str, *where: str) -> float:
    """Seconds from the command to the first line of its run, as its log shows it."""
    script = home.root / "first.sh"
    script.write_text("#!/bin/sh\ndate +%s.%N\nsleep 600\n")
    typed = time.time()
    home.run("run", str(script), "--name", name, *where)
    folder = home.root / "home/workloads" / name
    at: list[float] = []

    def printed() -> bool:
        with_line = [text for path in folder.rglob("child.log") if (text := path.read_text().strip())]
        if not with_line and where:
            with_line = [text] if (text := home.run("logs", name).strip()) else []
        at[:] = [float(text.split()[-1]) for text in with_line[:1]]
        return bool(at)

    until(printed, "its first line", 60, step_s=0.2)
    home.run("stop", name)
    return at[0] - typed


def starts() -> list[Figure]:
    """A run on the stand-in, beside one on this machine."""
    with BenchHome() as home, KubeBed(home.root / "kube") as bed:
        home.env["KUBECONFIG"] = str(bed.kubeconfig())
        home.run("host", "start")
        times: dict[str, list[float]] = {"local": [], "kubernetes": []}
        for turn in range(TIMES):
            for backend, found in times.items():
                words: tuple[str, ...] = ("--backend", backend)
                words += ("--image", "reg/t:1") if backend == "kubernetes" else ()
                found.append(first_line(home, f"{backend}-{turn}", *words))
    local, there = (statistics.median(times[name]) for name in ("local", "kubernetes"))
    return [Figure("run typed to its first line, Kubernetes", there, "s", 2 * local, local, "this machine")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2048)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    return finish([*asyncio.run(look(options.ranks)), *starts()], as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())

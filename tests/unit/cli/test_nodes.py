"""What `gpus` and `nodes` print, and what they refuse before anybody is asked."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from remuda.cli import main, show
from remuda.cli.look import gpus, nodes
from remuda.client.upkeep.node_tests import SmokeView


class Client:
    """Stands for the host: answers, and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, object, dict[str, object]]] = []

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query=query)

    def call(self, method: str, path: str, body: object = None, *, query: dict[str, object]) -> Any:
        self.asked.append((method, path, body, query))
        return self.answer


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client([])
    monkeypatch.setattr("remuda.client.http.connect", lambda: client)
    return client


GPUS = {"pool": "gpu", "is_up": True, "gpu": "a100", "vram_gb": None, "vram_variants": [40.0, 80.0], "max_per_node": 8,
        "available": 4, "availability": "partial", "nodes_free": 2, "nodes": 11, "free": 9, "total": 66}  # fmt: skip


def test_gpus_in_plain_words_when_piped(host: Client, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {**GPUS, "pool": "old", "is_up": False, "gpu": "", "vram_variants": [], "available": 0,
               "availability": "none", "nodes_free": 0, "free": 0}  # fmt: skip
    sized = {**GPUS, "pool": "l", "gpu": "l40s", "vram_gb": 48.0, "available": 8, "availability": "full"}
    host.answer = [GPUS, unknown, sized]
    assert main(["gpus", "--backend", "slurm"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "PARTITION   GPU   VRAM        MAX  AVAIL      NODES  TOTAL",
        "gpu         a100  40 or 80GB  8    4 partial  2/11   9/66",
        "old (down)  ?     ?           8    0 none     0/11   0/66",
        "l           l40s  48GB        8    8 full     2/11   9/66",
    ]
    assert host.asked == [("GET", "/gpus", None, {"backend": "slurm"})]


@pytest.mark.parametrize(("word", "icon"), [("full", "○ 4"), ("partial", "◐ 4"), ("none", "● 4")])
def test_gpus_with_icons_on_a_terminal(monkeypatch: pytest.MonkeyPatch, word: str, icon: str) -> None:
    monkeypatch.setattr(gpus, "is_terminal", lambda: True)
    assert icon in gpus._row({**GPUS, "availability": word})


NODE = {"name": "n1", "cluster": "slurm", "is_known": True, "state": "mixed", "usable": True, "reason": "",
        "pools": ["gpu", "spot"], "cpus": 16, "cpus_free": 4, "mem_bytes": 1, "gpus": 4, "gpus_free": 1,
        "gpu_type": "a100", "features": [], "weight": 0.5, "evidence": 1, "is_avoided": False, "ban": None}  # fmt: skip


def ban(until: float) -> dict[str, object]:
    return {"node": "n2", "cluster": "slurm", "by": "alice", "at": 0.0, "until": until, "reason": "Bad GPU"}


@pytest.mark.parametrize("words", [["nodes"], ["nodes", "--list"], ["nodes", "list"]])
def test_nodes_are_listed(host: Client, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    host.answer = [
        NODE,
        {**NODE, "name": "n2", "ban": ban(time.time() + 3600.5), "is_avoided": True, "reason": "Not responding"},
        {**NODE, "name": "c1", "gpus": 0, "gpu_type": "", "weight": 1.0, "is_avoided": True, "pools": ["cpu"]},
    ]
    assert main([*words, "-p", "gpu"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NODE  STATE  GPUS  TYPE  CPUS  WEIGHT  PARTITIONS",
        "n1    mixed  1/4   a100  4/16  0.5     gpu,spot",
        "n2    mixed  1/4   a100  4/16  0.5     gpu,spot",
        "  banned by alice for 1h more: Bad GPU; Not responding",
        "c1    mixed  -     -     4/16  1       cpu",
        "  avoided (remuda nodes history c1)",
    ]
    assert host.asked == [("GET", "/nodes", None, {"pool": "gpu", "backend": ""})]


@pytest.mark.parametrize("words", [["n1", "n[2-3]"], ["--node", "n1,n[2-3]"], ["n1", "--node", "n[2-3]"]], ids=" ".join)
def test_both_spellings_of_a_ban(host: Client, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    host.answer = [{**ban(time.time() + 3600.5), "node": "n1"}]
    assert main(["nodes", "ban", *words, "--ttl", "3600", "--reason", "Bad GPU"]) == 0
    (method, path, body, _) = host.asked[0]
    assert (method, path) == ("POST", "/nodes/n1,n[2-3]/ban")
    assert isinstance(body, dict)
    assert (body["ttl_s"], body["reason"], body["force"]) == (3600.0, "Bad GPU", False)
    assert capsys.readouterr().err == "n1 is banned for 1h: Bad GPU\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["ban"], 2, "Error: name a node: node001, or node[001-003,7]"),
        (["unban"], 2, "Error: name a node: node001, or node[001-003,7]"),
        (["ban", "n1", "--ttl", "soon"], 2, "error: --ttl: 'soon' is not a duration"),
        (["ban", "n1", "--ttl", "-5"], 2, "error: --ttl: '-5' is not a duration"),
        (["--json", "ban", "n1"], 2, "Error: write options behind the command: remuda nodes ban …"),
        (["test", "--timeout", "0"], 2, "error: --timeout: a test needs some time"),
        (["test", "--env", "LD_LIBRARY_PATH"], 2, "Error: Invalid value for '--env': write NAME=VALUE"),
        (["bann", "n1"], 2, "Error: No such command 'bann'. Did you mean 'ban'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_refused(
    host: Client, capsys: pytest.CaptureFixture[str], words: list[str], code: int, text: str
) -> None:
    assert main(["nodes", *words]) == code
    seen = capsys.readouterr()
    said = f"Error: {json.loads(seen.out)['error']['message']}" if "--json" in words else seen.err
    assert text in said.splitlines()
    assert host.asked == []


def result(outcome: str, meaning: str, detail: str = "", gpus: tuple[str, ...] = ()) -> SmokeView:
    return SmokeView(node="n1", pool="gpu", outcome=outcome, meaning=meaning, detail=detail, gpus=list(gpus), device="",
                     seconds=1.5, proved=True)  # fmt: skip


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (result("ok", "CUDA working", gpus=("NVIDIA H200", "NVIDIA H200")), "✓ n1  CUDA working: NVIDIA H200 (1.5 s)"),
        (result("failed", "CUDA failed", "cuInit returned 802"), "✗ n1  CUDA failed: cuInit returned 802 (1.5 s)"),
        (result("no-cuda", "no CUDA libs installed", "no libcuda"), "○ n1  no CUDA libs installed (1.5 s)"),
        (result("busy", "node busy (no free GPUs)"), "◐ n1  node busy (no free GPUs) (1.5 s)"),
        (result("refused", "QOS/partition error", "no"), "⊘ n1  QOS/partition error: no (1.5 s)"),
        (result("timeout", "timeout", "no answer"), "⏱ n1  timeout: no answer (1.5 s)"),
    ],
    ids=lambda value: value.outcome if isinstance(value, SmokeView) else None,
)
def test_a_line_for_each_of_the_six_outcomes(one: SmokeView, line: str) -> None:
    assert nodes._line(one, 2, with_icon=True) == line
    assert nodes._line(one, 2, with_icon=False) == one.outcome.ljust(7) + line[1:]


def test_a_summary() -> None:
    ok, bad = result("ok", "CUDA working"), result("failed", "CUDA failed")
    assert nodes._summary([ok, bad, ok]) == "3 nodes: 2 CUDA working, 1 CUDA failed"
    assert nodes._summary([bad]) == "1 node: 1 CUDA failed"


@pytest.mark.parametrize(("cell", "style"), [("✓ n1", "green"), ("◐ 4", "yellow"), ("● 0", "red"), ("FAILED", "red")])
def test_colours(cell: str, style: str) -> None:
    assert show.style_of(cell) == style

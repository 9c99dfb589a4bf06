"""Which lines tell of which fault: real lines as a table, and what must hold for any."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.node.script import patterns, scan
from remuda.wire.fault import KINDS, MAX_LINE, Fault

STEPD = "slurmstepd: error: *** JOB 41 ON n1 CANCELLED AT 2026-01-01T00:00:00"
X = "NVRM: Xid (PCI:0000:3b:00): "
LINES = [
    (f"[12.3] {X}79, pid=1, GPU has fallen off the bus.", "node", "xid-79", "0000:3b:00"),
    (f"{X}48, pid='<unknown>', name=<unknown>, DBE (double bit error)", "node", "xid-48", "0000:3b:00"),
    (f"{X}31, pid=77, name=python3, Ch 00000008, MMU Fault", "ambiguous", "xid-31", "0000:3b:00"),
    (f"{X}13, Graphics Exception: ESR 0x404490=0x80000002", "ambiguous", "xid-13", "0000:3b:00"),
    (f"{X}94, pid=1, Contained: SM (0x1)", "ambiguous", "xid-94", "0000:3b:00"),
    (f"{X}63, pid=1, Row Remapper: New row marked for remapping", "info", "xid-63", "0000:3b:00"),
    (f"{X}45, pid=1, Ch 00000010", "info", "xid-45", "0000:3b:00"),
    (
        f"{X}154, GPU recovery action changed to 0x2 (Node Reboot Required)",
        "node",
        "xid-154",
        "0000:3b:00",
    ),
    (f"{X}154, GPU recovery action changed to 0x0 (None)", "info", "xid-154", "0000:3b:00"),
    (f"{X}149, NETIR_LINK_EVT Fatal XC0", "node", "xid-149", "0000:3b:00"),
    (f"{X}149, NETIR_LINK_EVT Nonfatal XC0", "info", "xid-149", "0000:3b:00"),
    (f"{X}9999, something new", "info", "xid-9999", "0000:3b:00"),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "node", "cuda-214", ""),
    ("RuntimeError: CUDA error: uncorrectable NVLink error detected", "node", "cuda-220", ""),
    ("CUDA error: hardware stack error", "node", "cuda-714", ""),
    (
        "Unable to determine the device handle for GPU 0000:C1:00.0: Unknown",
        "node",
        "gpu-no-handle",
        "0000:c1:00",
    ),
    ("GPU 00000000:C1:00.0: GPU is lost.  Reboot the system to recover this GPU", "node", "gpu-lost", "0000:c1:00"),
    ("Error 802: system not yet initialized (CUDA error)", "node", "cuda-802", ""),
    ("Failed to initialize NVML: Driver/library version mismatch", "node", "driver-mismatch", ""),
    ("RuntimeError: No CUDA GPUs are available", "node", "cuda-100", ""),
    ("OSError: [Errno 5] Input/output error: '/data/x'", "node", "mount-input-output", ""),
    ("ls: cannot access '/scratch': Transport endpoint is not connected", "node", "mount-gone", ""),
    ("cp: error reading 'a': Stale file handle", "transient", "mount-stale", ""),
    ("CUDA error: all CUDA-capable devices are busy or unavailable", "node-busy", "cuda-46", ""),
    ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "node-busy", "cuda-46", ""),
    (
        f"{STEPD} DUE TO PREEMPTION ***",
        "transient",
        "preempted",
        "",
    ),
    (
        f"{STEPD} DUE TO TIME LIMIT ***",
        "info",
        "time-limit",
        "",
    ),
    (
        f"{STEPD} DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
        "transient",
        "node-fail",
        "",
    ),
    (f"{STEPD} ***", "application", "cancelled", ""),
    (
        "torch.OutOfMemoryError: CUDA out of memory. GPU 3 has",
        "resource",
        "cuda-out-of-memory",
        "3",
    ),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", "resource", "cuda-out-of-memory", ""),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=3.batch.", "resource", "out-of-memory", ""),
    ("OSError: [Errno 28] No space left on device", "resource", "disk-full", ""),
    ("RuntimeError: CUDA error: device-side assert triggered", "application", "cuda-710", ""),
    ("CUDA error: no kernel image is available for execution on the device", "application", "cuda-209", ""),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "ambiguous", "cuda-700", ""),
    ("RuntimeError: CUDA error: unspecified launch failure on cuda:5", "ambiguous", "cuda-719", "5"),
    ("CUDA error: misaligned address", "ambiguous", "cuda-716", ""),
    ("[rank3]:[E1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)", "transient", "nccl-timeout", ""),
    ("ncclRemoteError: A call failed possibly due to a network error", "transient", "nccl-remote", ""),
    ("ncclSystemError: System call (e.g. socket, malloc) failed", "transient", "nccl-system", ""),
    ("ConnectionResetError: [Errno 104] Connection reset by peer", "transient", "connection-reset", ""),
    ("ModuleNotFoundError: No module named 'torchh'", "application", "python-error", ""),
    ("[rank0]: KeyError: 'lr'", "application", "python-error", ""),
    ("train.sh: line 3: pyhton: command not found", "application", "shell-error", ""),
    ("/tmp/x.sh: 3: pyhton: not found", "application", "shell-error", ""),
    ("python: can't open file '/x/train.py': [Errno 2] No such file or directory", "application", "shell-error", ""),
]


@pytest.mark.parametrize(("line", "kind", "name", "device"), LINES)
def test_what_a_line_tells(line: str, kind: str, name: str, device: str) -> None:
    (fault,) = scan.faults_in([b"epoch 1", line.encode(), b"bye"], at=5.0)
    assert (fault.kind, fault.name, fault.device, fault.line, fault.at) == (kind, name, device, line, 5.0)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 100 of 1000, loss 2.1, error 0.3, lr 1e-4",
        "CUDA kernel errors might be asynchronously reported at some other API call",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions",
        "Some NCCL operations have failed or timed out.",
        "GPU memory: 70 GiB of 80 GiB in use, cuda graphs captured",
        "evaluation failed to improve; keeping the last checkpoint",
        "raised KeyError in a worker, retried",
    ],
)
def test_lines_that_tell_nothing(line: str) -> None:
    assert scan.faults_in([line.encode()]) == []


@pytest.mark.parametrize("line", [item[0] for item in LINES])
def test_the_quick_look_lets_through_what_tells(line: str) -> None:
    assert any(anchor in line.lower().encode() for anchor in patterns.ANCHORS)


def test_every_pattern_has_a_telling_word() -> None:
    """Else the quick look would hide a pattern from the exact one."""
    for pattern in patterns.PATTERNS:
        text = re.sub(rb"\(\?:|\[.*?\]|\\.|[()?*^$]", b" ", pattern.regex.pattern.lower())
        assert any(anchor in b" ".join(text.split()) or anchor in text for anchor in patterns.ANCHORS), pattern.name


def test_the_tables_agree_with_themselves() -> None:
    names = [pattern.name for pattern in patterns.PATTERNS]
    assert len(names) == len(set(names))
    assert {pattern.kind for pattern in patterns.PATTERNS} | {xid.kind for xid in patterns.XIDS.values()} <= set(KINDS)
    assert all(pattern.source for pattern in patterns.PATTERNS)
    assert {xid.action for xid in patterns.XIDS.values()} == {"none", "restart-app", "reset-gpu", "reboot", "inspect"}


def test_an_index_becomes_an_address_where_it_is_known() -> None:
    (fault,) = scan.faults_in([b"CUDA out of memory on cuda:1"], addresses={"1": "0000:3b:00"})
    assert fault.device == "0000:3b:00"


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("on GPU-1a2b3c4d-1111-2222-3333-444455556666 it", "GPU-1a2b3c4d-1111-2222-3333-444455556666"),
        ("at 00000000:AF:00.0", "0000:af:00"),
        ("at 0001:AF:1f", "0001:af:1f"),
        ("device=7", "7"),
        ("GPU 12 and cuda:3", "12"),
        ("at 12:34:56 nothing", ""),
    ],
)
def test_which_gpu_is_named(line: str, device: str) -> None:
    assert scan.device_in(line.encode()) == device


def fault(kind: str, name: str, device: str = "") -> Fault:
    return Fault(kind=kind, name=name, device=device)


def test_the_root_is_no_echo_of_another_rank() -> None:
    echo, bug, bad = fault("transient", "nccl-timeout"), fault("application", "python-error"), fault("node", "xid-79")
    assert scan.root_cause([]) is None
    assert scan.root_cause([echo]) is echo
    assert scan.root_cause([echo, bug]) is bug
    assert scan.root_cause([echo, bug, bad]) is bad
    first, second = fault("node", "xid-79", "a"), fault("node", "xid-79", "b")
    assert scan.root_cause([first, second]) is first


def test_each_name_and_gpu_counts_once() -> None:
    faults = scan.Faults()
    assert len(faults.add([fault("node", "x", "a"), fault("node", "x", "b"), fault("node", "x", "a")])) == 2
    assert faults.add([fault("node", "x", "b")]) == []


def test_a_grave_fault_finds_room_among_many() -> None:
    faults = scan.Faults()
    faults.add(fault("transient", "nccl-timeout", str(number)) for number in range(30))
    assert len(faults.all) == scan.MAX_FAULTS
    assert faults.add([fault("info", "note")]) == []
    assert faults.add([fault("node", "xid-79")])
    assert len(faults.all) == scan.MAX_FAULTS
    assert faults.all[-1].name == "xid-79"


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("abcdefghijklmnopqrstuvwxyz")), max_size=60))
def test_whatever_comes_there_are_at_most_twenty_and_no_graver_one_is_lost(items: list[tuple[str, str]]) -> None:
    faults = scan.Faults()
    for kind, name in items:
        faults.add([fault(kind, name)])
    assert len(faults.all) <= scan.MAX_FAULTS
    keys = [(item.name, item.device) for item in faults.all]
    assert len(keys) == len(set(keys))
    first_kinds = {name: kind for kind, name in reversed(items)}
    if len(first_kinds) <= scan.MAX_FAULTS:
        assert {item.name: item.kind for item in faults.all} == first_kinds


TEXT = b"".join(line.encode() + b"\nstep 3 of 9\n" for line, *_ in LINES)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, len(TEXT)), max_size=30))
def test_cut_anywhere_the_same_is_found(cuts: list[int]) -> None:
    scanner = scan.Scanner({}, clock=lambda: 0.0)
    found = []
    for begin, end in pairwise(sorted({0, *cuts, len(TEXT)})):
        found += scanner.feed(TEXT[begin:end])
    found += scanner.finish()
    assert {(item.name, item.device) for item in found} == {(item[2], item[3]) for item in LINES}


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_taken(data: bytes) -> None:
    for item in scan.faults_in(data.split(b"\n")):
        assert len(item.line) <= MAX_LINE


def test_a_line_without_an_end_is_bounded() -> None:
    scanner = scan.Scanner({}, clock=lambda: 0.0)
    for _ in range(50):
        assert scanner.feed(b"x" * 100_000) == []
    assert len(scanner._rest) <= scan.MAX_SCANNED
    scanner.feed(b"\nRuntimeError: CUDA error: unspecified launch")
    assert [item.name for item in scanner.feed(b" failure")] == []
    assert [item.name for item in scanner.finish()] == ["cuda-719"]


def test_only_a_share_of_the_time_is_spent() -> None:
    """Looking takes 0.1 s a piece here, and pieces come without a pause: most are passed over."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.05
        return now

    scanner = scan.Scanner({}, clock=clock)
    seen = sum(bool(scanner.feed(b"CUDA error: unspecified launch failure\n")) for _ in range(1000))
    assert 100 < seen < 400
    assert scanner.skipped_bytes == (1000 - seen) * 39

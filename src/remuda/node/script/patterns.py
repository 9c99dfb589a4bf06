"""Which lines of output tell of which fault: tables of facts, each with where it is from. Nothing is done here.

Sources: [N] NVIDIA's Xid catalog · [G] leptonai/gpud · [A] AWS's health check of distributed training · [Z] Azure's
node health checks · [M] Meta's GPU cluster monitoring · [R] NVIDIA's resiliency extension · [C] CUDA's list of error
codes · [P] texts of PyTorch · [B] ByteRobust (arXiv 2509.16293) · [S] Slurm · [L] Linux. Where they disagree the milder
reading stands, and the repeat on the same GPU decides.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remuda.wire.fault import AMBIGUOUS, APPLICATION, INFO, NODE, NODE_BUSY, RESOURCE, TRANSIENT


class Xid(NamedTuple):
    """What an error number of NVIDIA's driver means."""

    kind: str
    action: str
    """What helps: `none`, `restart-app`, `reset-gpu`, `reboot` or `inspect`."""
    source: str


class Pattern(NamedTuple):
    """Lines of one fault."""

    name: str
    kind: str
    regex: re.Pattern[bytes]
    source: str
    is_cascade: bool = False
    """Mostly the echo of another rank's fault, which counts if it is seen."""


def _xids(numbers: str, kind: str, action: str, source: str) -> dict[int, Xid]:
    found = {}
    for word in numbers.split():
        first, _, last = word.partition("-")
        found.update({number: Xid(kind, action, source) for number in range(int(first), int(last or first) + 1)})
    return found


_OF_PROGRAMS = "8 11 13 25 31 32 39-41 43 60 68-73 75-77 80 82-86 88 89 96-105 126-135 139"
#: A number that is not here is shown and blames nobody.
XIDS: dict[int, Xid] = {
    **_xids(_OF_PROGRAMS, AMBIGUOUS, "restart-app", "N"),
    **_xids("94", AMBIGUOUS, "restart-app", "N G"),
    **_xids("45 63 92 106 107", INFO, "none", "N M"),
    **_xids("46 48 62 64 74 95 109 110 119 120 136 140 143 144-150 155 156 158", NODE, "reset-gpu", "N A"),
    **_xids("79 151 168", NODE, "reboot", "N A G"),
    **_xids("54 165", NODE, "inspect", "N A"),
}
#: The recovery action that the driver itself names (number 154), most severe first.
RECOVERY = (
    (re.compile(rb"reboot", re.IGNORECASE), NODE),
    (re.compile(rb"reset|drain", re.IGNORECASE), NODE),
)
#: Numbers whose line says itself whether it was fatal (links between GPUs, fifth generation).
LINK_XIDS = range(144, 151)
XID_LINE = re.compile(rb"NVRM: Xid \(((?:PCI:)?[0-9a-fA-F:.]+)\)[^:]*: (\d+)(.*)")


class CudaCode(NamedTuple):
    """What an error of the CUDA driver means when a program of ours, which is right, gets it."""

    kind: str
    meaning: str


CUDA_CODES: dict[int, CudaCode] = {
    2: CudaCode(NODE_BUSY, "out of memory: something else holds the GPU's memory"),
    3: CudaCode(NODE, "the driver is not initialized"),
    46: CudaCode(NODE_BUSY, "the GPU is busy or unavailable: something else holds it"),
    100: CudaCode(NODE, "no GPU is detected"),
    101: CudaCode(NODE, "the GPU is not valid"),
    214: CudaCode(NODE, "uncorrectable memory error"),
    220: CudaCode(NODE, "uncorrectable NVLink error"),
    304: CudaCode(NODE, "a call of the operating system failed"),
    714: CudaCode(NODE, "error of the hardware stack"),
    802: CudaCode(NODE, "the system is not initialized yet (fabric manager)"),
    803: CudaCode(NODE, "driver and library have different versions"),
    804: CudaCode(NODE, "driver and library are not compatible"),
    999: CudaCode(NODE, "unknown error of the driver"),
}
CUDA_STUB = 34
"""The library is the one for building, without a driver behind it."""


def _pattern(name: str, kind: str, regex: str, source: str, *, cascade: bool = False, case: bool = False) -> Pattern:
    return Pattern(name, kind, re.compile(regex.encode(), 0 if case else re.IGNORECASE), source, cascade)


#: In this order; the first that fits a line names it. What blames the node stands before what might be its echo.
PATTERNS: tuple[Pattern, ...] = (
    _pattern("cuda-214", NODE, r"uncorrectable ECC error encountered|cudaErrorECCUncorrectable", "C R"),
    _pattern("cuda-220", NODE, r"uncorrectable NVLink error", "C R"),
    _pattern("cuda-714", NODE, r"hardware stack error", "C R"),
    _pattern("gpu-lost", NODE, r"GPU (?:is|has been) lost|fallen off the bus", "R G"),
    _pattern("gpu-no-handle", NODE, r"unable to determine the device handle", "R"),
    _pattern("cuda-802", NODE, r"(?:CUDA|cudaError|error 802).*system not yet initialized", "C R"),
    _pattern(
        "driver-mismatch",
        NODE,
        r"CUDA driver version is insufficient|driver/library version mismatch|unsupported display driver / cuda driver",
        "C R",
    ),
    _pattern("cuda-100", NODE, r"no CUDA-capable device is detected|no CUDA GPUs are available", "C P R"),
    _pattern("mount-input-output", NODE, r"\[Errno 5\] Input/output error|: Input/output error$", "L R"),
    _pattern("mount-gone", NODE, r"transport endpoint is not connected", "L R"),
    _pattern("mount-stale", TRANSIENT, r"stale (?:NFS )?file handle", "L R"),
    _pattern("nvlink-peer", NODE, r"invalid access of peer GPU memory over NVLink", "C R"),
    _pattern("cuda-46", NODE_BUSY, r"CUDA-capable device\(?s?\)? (?:is/)?are busy or unavailable", "C R"),
    _pattern("preempted", TRANSIENT, r"DUE TO PREEMPTION", "S R", case=True),
    _pattern("node-fail", TRANSIENT, r"DUE TO NODE FAILURE|\bNODE_FAIL\b", "S R", case=True),
    _pattern("time-limit", INFO, r"DUE TO TIME LIMIT", "S", case=True),
    _pattern("cancelled", APPLICATION, r"(?:JOB|STEP) \S+ .*CANCELLED AT \S+ \*\*\*$", "S", case=True),
    _pattern(
        "cuda-out-of-memory",
        RESOURCE,
        r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory"
        r"|torch\.OutOfMemoryError",
        "C P R",
    ),
    _pattern(
        "out-of-memory",
        RESOURCE,
        r"oom[-_]kill|out of memory: killed process|exceeded (?:job|step) memory limit|^MemoryError\b"
        r"|Cannot allocate memory",
        "L S R",
    ),
    _pattern("disk-full", RESOURCE, r"no space left on device|disk quota exceeded", "L R"),
    _pattern("cuda-710", APPLICATION, r"device-side assert", "C R"),
    _pattern("cuda-209", APPLICATION, r"no kernel image is available", "C R"),
    _pattern("cuda-700", AMBIGUOUS, r"an illegal memory access was encountered|cudaErrorIllegalAddress", "C B R"),
    _pattern("cuda-719", AMBIGUOUS, r"unspecified launch failure", "C B R"),
    _pattern("cuda-716", AMBIGUOUS, r"CUDA.*misaligned address", "C R"),
    _pattern("cuda-715", AMBIGUOUS, r"an illegal instruction was encountered", "C R"),
    _pattern("cuda-702", AMBIGUOUS, r"the launch timed out and was terminated", "C R"),
    _pattern(
        "nccl-timeout",
        TRANSIENT,
        r"watchdog caught collective operation timeout|NCCL.*\bTimeout\(ms\)=",
        "P R",
        cascade=True,
    ),
    _pattern(
        "nccl-remote",
        TRANSIENT,
        r"ncclRemoteError|remote process exited or there was a network error|NCCL communicator was aborted",
        "P R",
        cascade=True,
    ),
    _pattern("nccl-system", TRANSIENT, r"ncclSystemError|NCCL.*unhandled system error", "P R", cascade=True),
    _pattern("infiniband-retry", TRANSIENT, r"IBV_WC_RETRY_EXC_ERR", "R", cascade=True),
    _pattern("connection-reset", TRANSIENT, r"connection reset by peer|connection closed by peer", "L R", cascade=True),
    _pattern("rank-failed", INFO, r"ChildFailedError|exited with non-zero (?:status|exit code)", "P", cascade=True),
    _pattern("checkpoint-mismatch", APPLICATION, r"error\(s\) in loading state_dict", "P R"),
    _pattern("shape-mismatch", APPLICATION, r"mat1 and mat2 shapes cannot be multiplied|size mismatch for ", "P R"),
    _pattern(
        "python-error",
        APPLICATION,
        r"^(?:\[\S+\]:? ?)?(?:SyntaxError|IndentationError|TabError|ImportError|ModuleNotFoundError|NameError|KeyError"
        r"|AttributeError|TypeError|FileNotFoundError|UnboundLocalError|IndexError|AssertionError|ZeroDivisionError)\b",
        "R",
        case=True,
    ),
    _pattern(
        "shell-error",
        APPLICATION,
        r"^\S+: (?:line )?\d+: .*(?:command not found|: not found|syntax error|unexpected)"
        r"|(?:: |\] )No such file or directory$",
        "L",
    ),
)
#: Said around an error of CUDA, whatever it was.
IGNORED = re.compile(
    rb"might be asynchronously reported|consider passing CUDA_LAUNCH_BLOCKING|might be caused by|TORCH_USE_CUDA_DSA"
    rb"|some NCCL operations have failed or timed out",
    re.IGNORECASE,
)
#: Lower case; a piece of output in which none stands is looked at no further. A test compares them with the patterns.
ANCHORS = (
    b"err",
    b"xid",
    b"lost",
    b"fail",
    b"cuda",
    b"memory",
    b"unable to",
    b"endpoint",
    b"due to ",
    b"cancelled",
    b"fallen",
    b"mismatch",
    b"handle",
    b"kill",
    b"no space",
    b"quota",
    b"illegal",
    b"timed out",
    b"timeout",
    b"nccl",
    b"ibv_",
    b"peer",
    b"exited",
    b"mat1",
    b"driver",
    b"assert",
    b"kernel image",
    b"not found",
    b"unexpected",
    b"no such file",
    b"size ",
    b"busy",
    b"network",
)

"""The surroundings of the command that is running: the one place that reads them on the way to a plan."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.local.devices import present_gpus
from remuda.backends.registry import environment
from remuda.base.secrets import looks_secret
from remuda.fleet.roll import ROLL, Roll
from remuda.plan.context import Context

if TYPE_CHECKING:
    from remuda.base.disk.paths import StatePaths

_KEPT_NAMES = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "TMPDIR", "LANG", "LC_ALL"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "XDG_CACHE_HOME"}
)
_KEPT_PREFIXES = (
    "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "VLLM_", "SGLANG_", "SGL_", "LLAMA_", "GGML_", "CUDA_", "NVIDIA_", "NCCL_",
    "ROCR_", "HIP_", "TORCH", "PYTORCH_", "TRITON_", "OMP_", "MKL_", "TOKENIZERS_", "RAY_", "FLASHINFER_",
)  # fmt: skip


def context(paths: StatePaths, *, gpus: bool = True) -> Context:
    """The surroundings of this command.

    Args:
        paths: of the state directory.
        gpus: whether it is to be found out which there are, which may take a second.
    """
    roll = paths.fleet / ROLL
    is_alone = paths.fleet_environment.exists() and roll.exists() and not Roll(roll).members
    return Context(
        cwd=str(Path.cwd()),
        state=str(paths.root),
        python=sys.executable,
        nodes_python=python_for_nodes(paths.root),
        env=kept_environment(),
        gpus=present_gpus() if gpus else (),
        cpus=os.cpu_count() or 1,
        has_sbatch=not is_alone and shutil.which("sbatch", path=environment(paths).get("PATH")) is not None,
        is_alone=is_alone,
    )


def kept_environment() -> dict[str, str]:
    """What tasks see of the user's environment: search paths and the settings of engines; never a secret."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name in _KEPT_NAMES or name.startswith(_KEPT_PREFIXES)) and not looks_secret(name)
        and name != "CUDA_VISIBLE_DEVICES"
    }  # fmt: skip


def python_for_nodes(root: Path) -> str:
    """This interpreter, where nodes probably see it too: below the home directory, or beside the runs' files."""
    executable = Path(sys.executable)
    if executable.is_relative_to(Path.home()):
        return str(executable)
    try:
        shared = executable.stat().st_dev == next(p for p in (root, *root.parents) if p.exists()).stat().st_dev
    except OSError:
        shared = False
    return str(executable) if shared else "python3"

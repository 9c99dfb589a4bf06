"""The directory of one `apply`: everything that is needed to see what was started, and to start it again.

A dry run writes the same. `remuda apply DIR/resolved.yaml` repeats it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import remuda
from remuda.base.shell import show_command
from remuda.look import rendering
from remuda.specs.recipe.load import split_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.backends.base import Rendered
    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan

RESOLVED, RECIPE, ORIGINS, COMMANDS, FACTS = "resolved.yaml", "recipe.yaml", "origins.txt", "commands.txt", "facts.json"
_HASHED = 16 << 20
"""Bytes of a file that go into its fingerprint, with its size."""


def files(planned: Plan, facts: Looked, folder: str = "") -> dict[str, str]:
    """The directory of one `apply`: absolute path -> text.

    Args:
        planned: the deployment.
        facts: of the command.
        folder: where it goes instead of the workload's own.
    """
    assert planned.draft is not None
    tasks = rendering.shown([planned.workload], facts)
    spec, loaded = _document(planned), planned.draft.loaded
    file, _ = split_target(loaded.file)
    shown = loaded.show(derived=planned.derived)
    found = {
        RESOLVED: yaml.safe_dump(spec, sort_keys=False, allow_unicode=True),
        ORIGINS: "".join(f"{item.path}: {item.value!r}  # {item.origin}\n" for item in shown),
        COMMANDS: "\n".join(_commands(tasks)) + "\n",
        FACTS: json.dumps(_facts(planned), indent=1) + "\n",
        **{f"tasks/{item.token}/{Path(path).name}": text for item in tasks for path, text in item.files.items()},
    }
    if file.is_file():
        found[RECIPE] = file.read_text(encoding="utf-8")
    return {f"{folder or planned.workload.folder}/{name}": text for name, text in found.items()}


def _document(planned: Plan) -> dict[str, Any]:
    """The spec with everything filled in; of an engine only what was said, as what was not may be left to it.

    Flags of engines are kept as they are: null is a value of TensorRT-LLM's file.
    """
    spec: dict[str, Any] = planned.spec.model_dump(mode="json", exclude_none=True)
    said: dict[str, Any] = planned.spec.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    spec["name"] = planned.workload.name
    spec["benchmark"]["req_rate"] = [str(rate) if isinf(rate) else rate for rate in planned.spec.benchmark.req_rate]
    for below, own in ((spec, said), *((spec["roles"][name], said["roles"][name]) for name in spec["roles"])):
        if "engine" in own:
            below["engine"] = own["engine"]
    for name, role in planned.spec.by_name().items():
        spec["roles"][name]["args"] = dict(role.args)
    return spec


def _commands(tasks: Sequence[Rendered]) -> list[str]:
    lines = []
    for item in tasks:
        lines += [f"# {item.token}", show_command(item.argv, item.env)]
        for path, text in item.files.items():
            if Path(path).name == "child.json":
                lines.append("# runs: " + show_command(json.loads(text)["argv"], {}))
    return lines


def _facts(planned: Plan) -> dict[str, Any]:
    """Versions, and fingerprints of what a name may stand for something else tomorrow."""
    model = Path(planned.spec.model.path)
    images = {group.command.image for group in planned.workload.groups if group.command.image.startswith("/")}
    files = [path for path in (model, model / "config.json", *map(Path, sorted(images))) if path.is_file()]
    return {
        "remuda": remuda.__version__,
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "machine": platform.platform(),
        "workload": planned.workload.uid,
        "backend": planned.workload.backend,
        "files": {str(path): fingerprint(path) for path in files},
        "identity": dict(planned.spec.identity),
    }


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's size and beginning: enough to tell one image or model from another, quick for 100 GB."""
    found = hashlib.sha256(str(path.stat().st_size).encode())
    with path.open("rb") as file:
        found.update(file.read(_HASHED))
    return found.hexdigest()

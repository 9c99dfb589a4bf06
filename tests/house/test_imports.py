"""What import-linter cannot say: the oldest Python of node programs, and what a light command may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "remuda"
ON_NODES = sorted(path for room in ("node", "wire", "policy") for path in (PACKAGE / room).rglob("*.py"))
FOREIGN = {"nvml.py": {"pynvml"}, "zipapp.py": {"remuda.base.disk.files", "remuda.base.errors"}}
"""The file of the first is in the program; the second makes it, and stays at home."""
HEAVY = {"pydantic", "sqlalchemy", "alembic", "fastapi", "uvicorn", "pyarrow", "aiohttp", "rich", "orjson", "asyncio"}


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", ON_NODES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_node_programs_need_python_39_and_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    ours = ("remuda.node", "remuda.wire", "remuda.policy")
    foreign = {
        name
        for name in imported(tree)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith(ours) and name != "remuda"
    }
    assert foreign == FOREIGN.get(path.name, set())


def loaded_by(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(answer.stdout.splitlines()[-1].split())


RUN = "from remuda.cli import main\nassert main(['{0}']) == 0"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import remuda", id="import remuda"),
        pytest.param(RUN.format("--version"), id="remuda --version"),
        pytest.param(RUN.format("--help"), id="remuda --help"),
    ],
)
def test_light_commands_stay_light(code: str) -> None:
    assert loaded_by(code) & HEAVY == set()


def test_ranks_read_no_options_of_runs() -> None:
    program = "import sys, remuda.cli.runs.gang\nprint('remuda.cli.runs.run' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"  # noqa: PLW1510


def test_a_gang_loads_numpy_obstore_and_nothing_else() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport remuda.gang\n"
        "remuda.gang.ObjectStoreAllReduce('memory://x', run_id='r', rank=0, world_size=1)"
    )
    program = f"{code}\nprint(*sorted(set(sys.modules) - before))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = answer.stdout.split()
    assert {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) == {"numpy", "obstore", "remuda"}
    rooms = {name for name in loaded if name.startswith("remuda.") and not name.startswith("remuda.gang")}
    assert rooms <= {"remuda.base", "remuda.base.errors"}

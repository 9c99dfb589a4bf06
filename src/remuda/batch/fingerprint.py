"""What a checkpoint belongs to: everything that changes the answers, and nothing else."""

from __future__ import annotations

import ast
import hashlib
import inspect
from typing import TYPE_CHECKING, Any

import orjson

from remuda.base.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.batch.input.source import Source
    from remuda.batch.job import SwarmJob

#: Constructor arguments that do not change what a row's answer is.
_NEUTRAL = frozenset({"endpoint", "model", "checkpoint_interval", "max_concurrency", "retries", "timeout"})


def fingerprint(
    job: SwarmJob, arguments: Mapping[str, Any], source: Source, *, model: str, column: str, id_column: str
) -> dict[str, Any]:
    """The identity of a job, JSON-able; it goes into the checkpoint directory.

    Args:
        job: the instance.
        arguments: what its constructor was given.
        source: its input. It may change: every record has a digest of its row's own input. The files are noted all the
            same, so that a change can be told before anything is asked. With an id column rows are matched by id.
        model: as resolved.
        column: the input column.
        id_column: empty for identity by position.
    """
    kind = type(job)
    given = {name: value for name, value in arguments.items() if name not in _NEUTRAL}
    made: dict[str, Any] = {
        "job": f"{kind.__module__}:{kind.__qualname__}",
        "code": code_hash(kind),
        "model": model,
        "arguments": given | job.settings(),
        "input column": column,
        "output columns": job.output_names,
        "row identity": f"column {id_column}" if id_column else "position",
        "input": {} if id_column else source.identity(),
    }
    # A round trip, so that what is compared is what is stored.
    return orjson.loads(orjson.dumps(made, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS, default=str))  # type: ignore[no-any-return]


def code_hash(kind: type) -> str:
    """Hash of the modules that define a user's job, comments and layout left out; the revision of a built-in one."""
    digest = hashlib.sha256()
    for base in kind.__mro__:
        if base.__module__ == "builtins" or base.__module__.startswith("remuda."):
            continue
        digest.update(_code_of(base).encode())
    is_ours = kind.__module__.startswith("remuda.")
    return f"revision {getattr(kind, 'revision', 0)}" if is_ours else digest.hexdigest()[:16]


def _code_of(kind: type) -> str:
    try:
        source = inspect.getsource(inspect.getmodule(kind) or kind)
        return ast.dump(ast.parse(source))
    except (OSError, TypeError, SyntaxError):
        # Typed into a notebook or a shell: what the interpreter compiled still tells versions apart.
        functions = [item for _, item in sorted(vars(kind).items()) if inspect.isfunction(item)]
        return repr([(item.__name__, item.__code__.co_code, item.__code__.co_consts) for item in functions])


def check_same(stored: dict[str, Any], current: dict[str, Any], folder: Path) -> None:
    """See that a checkpoint belongs to this job. Its input may have changed.

    Raises:
        Conflict: something that changes answers differs; the message names it with both values.
    """
    changed = differences(stored | {"input": {}}, current | {"input": {}})
    if changed:
        raise Conflict(
            f"the checkpoint {folder} belongs to other settings: {'; '.join(changed)}",
            hint="--no-resume starts over; another --checkpoint-tag keeps both",
        )


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """What differs, as `name: old -> new`, in the order of the fingerprint."""
    found: list[str] = []
    for name in dict.fromkeys([*current, *stored]):
        old, new = stored.get(name), current.get(name)
        if old == new:
            continue
        if name == "arguments" and isinstance(old, dict) and isinstance(new, dict):
            found += [
                f"{key}: {_show(old.get(key, _ABSENT))} -> {_show(new.get(key, _ABSENT))}"
                for key in dict.fromkeys([*new, *old])
                if old.get(key, _ABSENT) != new.get(key, _ABSENT)
            ]
        elif name == "input" and isinstance(old, dict) and isinstance(new, dict):
            found += input_changes(old, new)
        elif name == "code":
            found.append(f"the code of the job: {_show(old)} -> {_show(new)}")
        else:
            found.append(f"{name}: {_show(old)} -> {_show(new)}")
    return found


_ABSENT = object()


def _show(value: object) -> str:
    if value is _ABSENT:
        return "not set"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def input_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two `Source.identity`, a part of a sentence each."""
    found = [f"input file {name} was added" for name in new if name not in old]
    found += [f"input file {name} is gone" for name in old if name not in new]
    for name in new:
        if name in old and old[name] != new[name]:
            sizes = f"{old[name][0]} -> {new[name][0]} bytes"
            found.append(
                f"input file {name} changed ({sizes if old[name][0] != new[name][0] else 'modification time'})"
            )
    if not found:
        found.append("the order of the input files changed")
    return found if len(found) <= 3 else [*found[:3], f"and {len(found) - 3} more files"]

"""A recipe as a deployment: its keys moved to where ours are, each with the place where the user wrote it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from remuda.specs.reading.document import Problem, fail
from remuda.specs.reading.fields import dotted, lookup
from remuda.specs.reading.resolve import Layer, Moving
from remuda.specs.recipe.words import Fate, Word, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.specs.reading.document import Path
    from remuda.specs.reading.resolve import Resolved

_DYNAMO: Final = ("version", "hash", "top_of_tree", "wheel")
"""Keys by which version 1 says which Dynamo it means."""
_ROUTERS: Final = {"sglang": "sglang-router", "vllm": "vllm-router"}
"""Frontends whose name means their router in version 1."""


@dataclass(frozen=True)
class Normal:
    """A recipe in our words.

    Args:
        layer: values, and where each was written.
        theirs: our path -> the recipe's, where they differ.
        notes: what was read and is not used, a sentence each.
    """

    layer: Layer
    theirs: Mapping[Path, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def in_their_words(self, problem: Problem) -> Problem:
        """The same problem with the keys as the user wrote them."""

        def translated(match: re.Match[str]) -> str:
            path: Path = tuple(match.group(1).split("."))
            for end in range(len(path), 0, -1):
                if path[:end] in self.theirs:
                    return f"`{dotted((*self.theirs[path[:end]], *path[end:]))}`"
            return match.group(0)

        return replace(problem, message=re.sub(r"`([\w.]+)`", translated, problem.message))


def version_of(resolved: Resolved) -> int:
    """The version of a recipe: 2 where it says so, else 1.

    Raises:
        InputError: it says another.
    """
    said = resolved.data.get("schema")
    if said is None or str(said) in ("1", "2"):
        return int(str(said or 1))
    origin = resolved.origin(("schema",))
    raise fail([Problem(origin.where, f"`schema` must be 1 or 2, not {said!r}", "")])


def normalise(resolved: Resolved) -> Normal:
    """A recipe of either version in our words.

    Raises:
        InputError: keys that no recipe has, or that cannot be used; says where, and names all of them.
    """
    version = version_of(resolved)
    reading = _Reading(resolved, words_of(version))
    reading.read(resolved.data, ())
    if reading.problems:
        raise fail(reading.problems)
    if version == 1:
        _older_meanings(reading)
    plane = lookup(reading.data, ("dynamo", "request_plane"))
    if str(plane) == "http":
        reading.data["dynamo"]["request_plane"] = "tcp"
        reading.notes.append("dynamo.request_plane is http, which Dynamo has no more: tcp is used")
    return Normal(reading.layer(), reading.theirs, tuple(reading.notes))


class _Reading(Moving):
    """Moves keys one by one."""

    def __init__(self, resolved: Resolved, words: tuple[Word, ...]) -> None:
        super().__init__(resolved)
        self.words = words
        self.by_path = {word.path: word for word in words}
        self.data["kind"] = "deployment"
        self.keys[()] = resolved.key(())
        self.theirs: dict[Path, Path] = {}

    def read(self, data: Mapping[str, Any], path: Path) -> None:
        for key, value in data.items():
            at = (*path, key)
            word = self.by_path.get(tuple(map(str, at)))
            is_inner = any(word.path[: len(at)] == at and len(word.path) > len(at) for word in self.words)
            if is_inner and isinstance(value, dict) and (word is None or word.fate is not Fate.USED):
                self.read(value, at)
                if not value and path == ("roles",):
                    self.put(at, at, {})  # a role of which nothing is said works, too
            elif word is None:
                self.refuse(at, is_inner=is_inner)
            else:
                self.take(word, at, value)

    def refuse(self, at: Path, *, is_inner: bool) -> None:
        size = len(at)
        if is_inner:
            self.wrong(at, f"`{dotted(at)}` must be a mapping")
        else:
            below = (word.path for word in self.words if len(word.path) >= size)
            self.unknown(at, {path[size - 1] for path in below if path[: size - 1] == at[:-1]})

    def take(self, word: Word, at: Path, value: Any) -> None:
        if word.fate is Fate.REFUSED:
            self.wrong(at, f"`{dotted(at)}` cannot be used: {word.why}")
        elif word.fate is Fate.IGNORED:
            if at != ("schema",):
                self.notes.append(f"{self.resolved.key(at).text}: `{dotted(at)}` is not used: {word.why}")
        elif value is not None:
            self.put(word.to, at, value)

    def put(self, to: Path, at: Path, value: Any) -> None:
        """A value, and what is below it, at its new place."""
        if at == ("extra_mount",):
            value = self.mounts(at, value)
        if to[:1] == ("roles",) and to[-1] == "args" and isinstance(value, dict):
            value = {key: item for key, item in value.items() if not _is_srtctls_model(key, item)}
        super().put(to, at, value)
        if to != at:
            self.theirs[to] = at

    def mounts(self, at: Path, value: Any) -> dict[str, str]:
        """`[host:container]` as a mapping."""
        found: dict[str, str] = {}
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            host, colon, inside = str(item).partition(":")
            if not colon or not host or not inside:
                sentence = f"`{dotted(at)}` has {str(item)!r}, which is not a mount"
                self.wrong((*at, index), sentence, "write /on/the/node:/inside")
            found[host] = inside
        return found


def _is_srtctls_model(key: str, value: Any) -> bool:
    """Whether a flag says where srtctl's containers have the model, which the launcher says itself."""
    return key.lstrip("-").replace("_", "-") in ("model-path", "model") and str(value).rstrip("/") == "/model"


def _older_meanings(reading: _Reading) -> None:
    """What version 1 says by values that mean something else here."""
    data = reading.data
    engine = data.setdefault("engine", {})
    if isinstance(engine, dict):
        engine.setdefault("type", "sglang")
        _only_own_flags(reading, str(engine["type"]))
        if _says_null(reading.resolved, ("backend", "connector")):
            engine["connector"] = "none"
            reading.values["engine", "connector"] = reading.resolved.key(("backend", "connector"))
    roles = data.get("roles", {})
    decode, prefill = roles.get("decode"), roles.get("prefill")
    if isinstance(decode, dict) and isinstance(prefill, dict) and str(decode.get("nodes")) == "0":
        decode["nodes"] = "colocate"
    _apart_or_together(roles)
    if (size := data.get("services")) is not None:
        data["services"] = [{"name": "nats", "type": "nats", "start": "infra", "options": {"max_payload_mb": size}}]
    said = reading.resolved.data.get("dynamo", {})
    if isinstance(said, dict) and not any(said.get(key) for key in _DYNAMO):
        data.setdefault("dynamo", {}).setdefault("version", "0.8.0")
    frontend = data.get("frontend")
    if isinstance(frontend, dict):
        kind = str(frontend.get("type", ""))
        if kind in _ROUTERS:
            frontend["type"] = _ROUTERS[kind]
        extra = frontend.get("replicas")
        if extra is not None and str(extra).isdigit():
            several = lookup(reading.resolved.data, ("frontend", "enable_multiple_frontends"))
            frontend["replicas"] = 1 if str(several).lower() == "false" else int(str(extra)) + 1


def _apart_or_together(roles: dict[str, Any]) -> None:
    """A recipe may name flags of roles that have no nodes: such a role does not work."""
    apart = any("nodes" in roles.get(name, {}) for name in ("prefill", "decode"))
    for name in ("agg",) if apart else ("prefill", "decode"):
        role = roles.get(name)
        if isinstance(role, dict) and not role.keys() & {"nodes", "workers", "gpus"}:
            del roles[name]


def _only_own_flags(reading: _Reading, engine: str) -> None:
    backend = reading.resolved.data.get("backend")
    for key in backend if isinstance(backend, dict) else ():
        other = str(key).removesuffix("_config")
        if str(key).endswith("_config") and key != "kv_events_config" and other != engine:
            origin = reading.resolved.key(("backend", key))
            sentence = f"`backend.{key}` has flags of {other}, and the engine is {engine}"
            raise fail([Problem(origin.where, sentence, f"say backend.type: {other}, or call it {engine}_config")])


def _says_null(resolved: Resolved, path: Path) -> bool:
    for layer in reversed(resolved.layers):
        found = lookup(layer.data, path[:-1])
        if isinstance(found, dict) and path[-1] in found:
            return found[path[-1]] is None
    return False

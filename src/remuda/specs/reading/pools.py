"""Read a pool's document, and the documents that are written inside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from remuda.specs.pool import PoolSpec
from remuda.specs.reading.document import Document, fail
from remuda.specs.reading.errors import problems_of
from remuda.specs.reading.fields import dotted
from remuda.specs.reading.load import build, read_defaults, read_document, read_settings
from remuda.specs.reading.resolve import Override, Resolved, ValueOrigin, document_layer, resolve
from remuda.specs.swarm import SwarmSpec

if TYPE_CHECKING:
    from remuda.specs.reading.document import Path
    from remuda.specs.reading.load import Loaded
    from remuda.specs.strict import Strict


@dataclass(frozen=True)
class CheckedPool:
    """A checked pool, and where everything in it stands."""

    spec: PoolSpec
    document: Document
    resolved: Resolved
    folder: FilePath
    """Where relative paths begin."""

    def where(self, *path: str | int) -> str:
        """`file:line:column` of a key, or of what encloses it."""
        return self.resolved.key(path).where

    def path(self, text: str) -> str:
        """An absolute path; a slash at its end stays."""
        return str((self.folder / FilePath(text).expanduser()).absolute()) + ("/" if text.endswith("/") else "")

    def overrides(self, index: int) -> list[Override]:
        """What the pool says about the swarm beyond its document."""
        raw = self.document.data["swarms"][index]
        said = [(key, raw.get(key)) for key in ("name", "replicas")]
        found = [Override(key, value, self.where("swarms", index, key)) for key, value in said if value is not None]
        more = raw.get("overrides") or {}
        return found + [Override(key, more[key], self.where("swarms", index, "overrides", key)) for key in more]

    def inline(self, index: int) -> Document:
        """The document that is written inside the pool, with its places in the pool's file."""
        start: Path = ("swarms", index, "swarm")

        def below(marks: Any) -> Any:
            return {path[len(start) :]: mark for path, mark in marks.items() if path[: len(start)] == start}

        data = self.document.data["swarms"][index]["swarm"]
        return Document(self.document.name, data, below(self.document.values), below(self.document.keys))


def load_pool(path: FilePath | str) -> CheckedPool:
    """Read a pool's document.

    Raises:
        InputError: something is wrong; says where.
    """
    document = read_document(path)
    resolved = resolve([document_layer(document, ValueOrigin.FILE)])
    try:
        spec = PoolSpec.model_validate(resolved.data)
    except ValidationError as error:
        raise fail(problems_of(error, PoolSpec, resolved)) from error
    return CheckedPool(spec, document, resolved, FilePath(path).expanduser().absolute().parent)


def build_inline(pool: CheckedPool, index: int) -> Loaded[Strict]:
    """The swarm that is written inside the pool.

    Raises:
        InputError: something is wrong; says where in the pool's file.
    """
    overrides = pool.overrides(index)
    loaded = build(
        pool.inline(index), overrides, expect="swarm", defaults=read_defaults(), settings=read_settings()
    )  # fmt: skip
    assert isinstance(loaded.spec, SwarmSpec), dotted(("swarms", index))
    return loaded

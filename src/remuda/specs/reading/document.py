"""YAML or JSON text to plain data, with the line and column of everything in it.

Scalars keep the text that the user wrote (`1:30`, `no`, `010`): the field decides what it means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from remuda.base.errors import InputError
from remuda.specs.strict import Plain

Path = tuple[str | int, ...]
MAX_NODES: Final = 50_000
"""Bound of values in one document, aliases counted each time: nested aliases could mean billions."""
MAX_DEPTH: Final = 100

_CORE: Final = "tag:yaml.org,2002:"
_KNOWN_TAGS: Final = frozenset(
    _CORE + name for name in ("null", "bool", "int", "float", "str", "timestamp", "value", "merge", "map", "seq")
)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """A file's data and where everything in it stands."""

    name: str
    """As the user named the file."""
    data: dict[str, Any]
    values: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with what the user gave."""

    where: str
    message: str
    hint: str = ""
    order: tuple[int, int] = (0, 0)

    @property
    def text(self) -> str:
        """It in one line, with its place and what to do."""
        first = f"{self.where}: {self.message}" if self.where else self.message
        return f"{first} ({self.hint})" if self.hint else first


def fail(problems: list[Problem]) -> InputError:
    """One error for all of `problems`: the first leads, each has its line."""
    first, *others = sorted(problems, key=lambda problem: problem.order)
    lines = [first.message, *(problem.text for problem in others)]
    return InputError("\n".join(lines), hint=first.hint, where=first.where)


def parse(text: str, name: str) -> Document:
    """Read one document.

    Raises:
        InputError: not YAML, empty, not a mapping, repeated keys; says where.
    """
    try:
        _refuse_deep(_for_yaml(text), name)
        node = yaml.compose(_for_yaml(text), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, text, name) from error
    except yaml.YAMLError as error:
        raise InputError(f"is not valid YAML: {str(error).splitlines()[0]}", where=name) from error
    if node is None or (isinstance(node, yaml.ScalarNode) and node.value == ""):
        raise InputError("the file is empty", hint="write at least `model: …`", where=name)
    reader = _Reader(name)
    if not isinstance(node, yaml.MappingNode):
        raise InputError("must be a mapping of keys and values", where=reader.place(node))
    data = reader.value(node, ())
    if reader.problems:
        raise fail(reader.problems)
    return Document(name, data, reader.values, reader.keys)


def _refuse_deep(text: str, name: str) -> None:
    """The library builds nodes recursively: 100,000 brackets would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            mark = event.start_mark
            where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
            raise InputError(f"more than {MAX_DEPTH} levels", where=where)


def _for_yaml(text: str) -> str:
    """JSON is YAML, but for tabs between values and for surrogate pairs in escapes."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    pair = re.compile(r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)

    def join(match: re.Match[str]) -> str:
        high, low = int(match.group(2), 16), int(match.group(3), 16)
        return match.group(1) + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    return pair.sub(join, text.replace("\t", " "))


def _not_yaml(error: yaml.MarkedYAMLError, text: str, name: str) -> InputError:
    mark = error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    problem = error.problem or error.context or "it cannot be read"
    hint = "check indentation, quotes and brackets there"
    if mark and _char(text, mark.line, mark.column) == "\t":
        hint = "indent with spaces, not with tabs"
    if "but found another document" in problem:
        problem, hint = "there is more than one document in the file", "keep one, without a second `---`"
    if "mapping values are not allowed" in problem:
        hint = "put quotes around text that contains a colon and a space, or check the indentation"
    if "undefined alias" in problem:
        hint = "put quotes around text that begins with *"
    return InputError(f"is not valid YAML: {problem}", hint=hint, where=where)


def _char(text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    return lines[line][column : column + 1] if line < len(lines) else ""


class _Reader:
    """Turns nodes into data and remembers where they stood."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[Path, Mark] = {}
        self.keys: dict[Path, Mark] = {}
        self.problems: list[Problem] = []
        self.count = 0
        self.open: set[int] = set()

    def place(self, node: yaml.Node) -> str:
        mark = _mark(node)
        return f"{self.name}:{mark.line}:{mark.column}"

    def note(self, node: yaml.Node, message: str, hint: str = "") -> None:
        mark = _mark(node)
        self.problems.append(Problem(self.place(node), message, hint, (mark.line, mark.column)))

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        if self.count > MAX_NODES:
            raise InputError(f"more than {MAX_NODES:,} values", hint="nested aliases multiply", where=self.place(node))
        self.values[path] = _mark(node)
        if node.tag not in _KNOWN_TAGS:
            self.note(node, f"the tag {_short(node.tag)} is not known", "write plain values")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if id(node) in self.open:
            raise InputError("an alias contains itself", where=self.place(node))
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self.open.discard(id(node))

    def scalar(self, node: yaml.ScalarNode) -> str | None:
        if node.style is not None and node.style != "":
            return str(node.value)
        if node.tag == f"{_CORE}null":
            return None
        return Plain(node.value)

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        own: dict[str, Mark] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.note(key_node, "a key must be text")
                continue
            key = str(key_node.value)
            if key_node.tag == f"{_CORE}merge":
                merged.append(value_node)
                continue
            if key in own:
                self.note(key_node, f"the key {key!r} is there twice", f"the first is in line {own[key].line}")
                continue
            own[key] = self.keys[(*path, key)] = _mark(key_node)
            out[key] = self.value(value_node, (*path, key))
        for source in merged:
            self.merge(source, path, out)
        return out

    def merge(self, source: yaml.Node, path: Path, out: dict[str, Any]) -> None:
        """Add what `<<` brings, for keys that are not there yet."""
        self.count += 1
        sources = source.value if isinstance(source, yaml.SequenceNode) else [source]
        for item in sources:
            if not isinstance(item, yaml.MappingNode) or id(item) in self.open or self.count > MAX_NODES:
                self.note(item, "`<<` takes a mapping, or a list of mappings")
                continue
            part = _Reader(self.name)
            part.count, part.open = self.count, self.open | {id(item)}
            data = part.mapping(item, path)
            self.count = part.count
            self.problems += part.problems
            for key in data.keys() - out.keys():
                out[key] = data[key]
                self.take(part, (*path, key))

    def take(self, part: _Reader, path: Path) -> None:
        size = len(path)
        self.values |= {at: mark for at, mark in part.values.items() if at[:size] == path}
        self.keys |= {at: mark for at, mark in part.keys.items() if at[:size] == path}


def _mark(node: yaml.Node) -> Mark:
    start = node.start_mark
    return Mark(start.line + 1, start.column + 1)


def _short(tag: str) -> str:
    return "!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag

"""Help texts of documents: the docstrings under their fields, read from the source only where they are printed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import BaseModel

from remuda.specs.reading.fields import submodels

if TYPE_CHECKING:
    from collections.abc import Mapping


def help_of(model: type[BaseModel], name: str) -> str:
    """The help text of a field; empty where it has none."""
    return texts(model).get(name, "")


@cache
def texts(model: type[BaseModel]) -> Mapping[str, str]:
    """The help texts of a model's fields, by name."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if not issubclass(owner, BaseModel) or owner is BaseModel:
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for pair in pairwise(tree.body):
            match pair:
                case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                    found[name] = inspect.cleandoc(text)
    return {name: text for name, text in found.items() if name in model.model_fields}


def describe(model: type[BaseModel], done: set[type[BaseModel]] | None = None) -> None:
    """Give a model and all below it their help texts as descriptions, for a schema; what is below comes first."""
    done = set() if done is None else done
    done.add(model)
    for name, field in model.model_fields.items():
        field.description = field.description or help_of(model, name) or None
        for inner in submodels(field.annotation):
            if inner not in done:
                describe(inner, done)
    model.model_rebuild(force=True)

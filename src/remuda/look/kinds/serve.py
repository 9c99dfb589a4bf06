"""A swarm without a document: the model is named, the rest is what this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.ids import slug
from remuda.base.text import did_you_mean
from remuda.look import planning
from remuda.look.kinds import SENT
from remuda.look.kinds.swarm import plan_loaded
from remuda.specs.reading.load import assignment, load_swarm
from remuda.specs.reading.resolve import Override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan

_WITH_GPUS: Final = ("vllm", "sglang", "transformers")
_WITHOUT: Final = ("transformers", "vllm")
_LONGEST_NAME: Final = 40


def gguf_of(model: str) -> str:
    """The GGUF file that a model is: itself, or the one in the folder; empty for other models.

    Raises:
        InputError: the file is not there, or the folder has several.
    """
    if model.lower().endswith(".gguf"):
        if not Path(model).is_file():
            beside = [one.name for one in Path(model).parent.glob("*") if one.suffix.lower() == ".gguf"]
            raise InputError(f"there is no file {model!r}", hint=did_you_mean(Path(model).name, beside))
        return model
    found = sorted(path for path in Path(model).glob("*") if path.suffix.lower() == ".gguf")
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:5])
        raise InputError(f"{model} has several GGUF files: {names}", hint=f"name one: remuda serve {found[0]}")
    return str(found[0]) if found else ""


def engines_for(model: str, gpus: int) -> tuple[str, ...]:
    """Engines that can serve a model, the best first."""
    if model.lower().endswith(".gguf"):
        return ("llamacpp",)
    return _WITH_GPUS if gpus else _WITHOUT


def gpus_for(present: int, replicas: int) -> int:
    """GPUs of each replica: its share, as a power of two, because engines split a model's heads evenly."""
    share = present // replicas
    return 1 << (share.bit_length() - 1) if share else 0


def plan(
    facts: Looked, model: str, engine: str = "", gpus: int | None = None, replicas: int = 1, name: str = "",
    settings: Sequence[str] = (), port: int = 0,
) -> list[Plan]:  # fmt: skip
    """Plan a swarm of one model on this machine.

    Args:
        facts: of the command.
        model: a GGUF file, a directory (also with one), or a name that the engine knows.
        engine: empty for the first that is installed here and can serve the model.
        gpus: of each replica; None for its share of those that are here.
        replicas: how many.
        name: empty for one made of the model's.
        settings: `KEY=VALUE` as for `up`.
        port: of the endpoint; 0 for the first that is free from 9000 on.

    Raises:
        InputError: no engine for it is here, or something else is wrong; says what to do.
    """
    model = gguf_of(model) or model
    if Path(model).is_dir() and not any(Path(model).glob("*.json")):  # every engine's format has a configuration
        raise InputError(f"the folder {model} holds no model", hint="it needs a .gguf file, or config.json and weights")
    each = gpus_for(len(facts.context().gpus), replicas) if gpus is None else gpus
    hint, tried = "", (engine,) if engine else engines_for(model, each)
    for one in tried:
        values = {
            "model": model, "engine": one, "name": name or slug(Path(model).stem)[:_LONGEST_NAME] or "model",
            "replicas": replicas, "gpus_per_replica": each, "backend.type": "local",
            **({"router.type": "none"} if replicas == 1 else {}),
            **({"backend.endpoint.port": port} if port else {}),
        }  # fmt: skip
        overrides = [Override(path, value, "remuda serve") for path, value in values.items()]
        overrides += [assignment(text) for text in settings]
        planned = plan_loaded(load_swarm(None, overrides), facts)
        found = planning.findings(planned, facts, SENT) if len(tried) > 1 else []
        missing = next((one for one in found if one.path == ("engine_path",)), None)
        if missing is None:
            return [planned]
        hint = missing.hint
    looked = " or ".join(tried)
    raise InputError(f"this machine has no engine for {model} (looked for {looked})", hint=hint)

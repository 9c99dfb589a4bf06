"""What of a deployment cannot work, told from its spec, its model's configuration and its engine's help. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.text import brief
from remuda.plan.compile import Finding
from remuda.plan.deployment.shape import shape_of
from remuda.plan.engines import ENGINES, Serve
from remuda.plan.engines.flags import DP, PP, TP, counted, dashed, known_flags, unknown_flags, words
from remuda.specs.reading.fields import lookup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.specs.deployment import DeployedRole, DeploymentSpec
    from remuda.specs.reading.document import Path

_CPU_BLOCK: Final = 32
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}")
_ALIKE: Final = ("page size", "type of the cache", "context length")
"""What prefill and decode must have in common."""
_SAME: Final = {"fp8": "fp8_e4m3"}
_DEFAULT: Final = ("auto", "None", "none")
_CP: Final = ("context-parallel-size", "cp-size")


@dataclass(frozen=True)
class _Said:
    value: str
    path: Path


def check_spec(spec: DeploymentSpec, heads: int = 0) -> list[Finding]:
    """All that spec and model tell.

    Args:
        spec: of the deployment.
        heads: attention heads of the model; 0: not known.
    """
    found = [*_roles_agree(spec)]
    for name, role in spec.by_name().items():
        if role.workers:
            found += [*_said_twice(name, role), *_parallel(spec, name, heads), *_block_on_cpu(spec, name)]
    return found


def check_ports(spec: DeploymentSpec) -> list[Finding]:
    """Ports of a worker that are none, or that it would open twice."""
    found = []
    for name, role in spec.by_name().items():
        ports = {("roles", name, "args", key): int(str(value)) for key, value in role.args.items()
                 if dashed(key).endswith(("-port", "-ports")) and re.fullmatch("[0-9]{1,9}", str(value))}  # fmt: skip
        for path, port in ports.items():
            others = [at[-1] for at, number in ports.items() if number == port and dashed(at[-1]) != dashed(path[-1])]
            if not 1 <= port <= 65535:
                found.append(Finding(path, f"`{path[-1]}` is {port}: a port is 1 to 65535"))
            elif others:
                found.append(Finding(path, f"`{path[-1]}` is {port}, and so is `{others[0]}`: each needs its own"))
    return found


def said(spec: DeploymentSpec, name: str, flags: Sequence[str]) -> _Said | None:
    """What a role says of the first of `flags` that it knows: in its words, its flags, or its engine's knobs."""
    role, engine = spec.by_name()[name], spec.engine_of(name)
    names = {dashed(flag) for flag in flags if "." not in flag}
    for word, after in reversed([*pairwise((*role.extra_args, ""))]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and dashed(flag) in names:
            alone = "" if after.startswith("--") else after
            return _Said(value if equals else alone, ("roles", name, "extra_args"))
    for key, value in counted(role.args).items():
        if dashed(key) in names:
            return _Said(str(value), ("roles", name, "args", key))
    for flag in flags:
        path = tuple(flag.split("."))
        if len(path) > 1 and (value := lookup(role.args, path)) is not None:
            return _Said(str(value), ("roles", name, "args", *path))
    for flag in flags:
        knob = flag.replace("-", "_")
        if knob in engine.model_fields_set and getattr(engine, knob) is not None:
            above: Path = ("engine",) if role.engine is None else ("roles", name, "engine")
            return _Said(str(getattr(engine, knob)), (*above, knob))
    return None


def _roles_agree(spec: DeploymentSpec) -> Iterator[Finding]:
    if "agg" in spec.by_name():
        return
    for what in _ALIKE:
        prefill, decode = (
            said(spec, name, ENGINES[spec.engine_of(name).type].alike.get(what, ())) for name in ("prefill", "decode")
        )
        values = [None if one is None or one.value in _DEFAULT else _SAME.get(one.value, one.value)
                  for one in (prefill, decode)]  # fmt: skip
        if values[0] == values[1]:
            continue
        if prefill and decode and None not in values:
            yield Finding(decode.path, f"the {what} of decode is {brief(decode.value)}, and that of prefill "
                                       f"{brief(prefill.value)}: they must be the same")  # fmt: skip
        elif one := (prefill if values[0] is not None else decode):
            speaks, silent = ("prefill", "decode") if one is prefill else ("decode", "prefill")
            yield Finding(one.path, f"the {what} of {speaks} is {brief(one.value)}, and {silent} leaves it to the "
                                    "engine: they must be the same", fails=False)  # fmt: skip


def _number(spec: DeploymentSpec, name: str, flags: Sequence[str]) -> tuple[int, Path]:
    """A count that a role says, and where; 1 where it says none, or no number."""
    one = said(spec, name, flags)
    return (int(one.value), one.path) if one and _COUNT.fullmatch(one.value) else (1, ())


def _is_on(spec: DeploymentSpec, name: str, flag: str) -> bool:
    one = said(spec, name, (flag,))
    return one is not None and one.value.lower() in ("true", "")


def _ranks(spec: DeploymentSpec, name: str) -> tuple[int, Path, int]:
    """GPUs that the flags of a role are for, where the widest is said (empty: nowhere), and ranks that share heads."""
    engine = spec.engine_of(name).type
    tp, tp_path = _number(spec, name, TP)
    pp, pp_path = _number(spec, name, PP)
    dp, dp_path = _number(spec, name, DP) if engine in ("sglang", "vllm") else (1, ())
    cp, _ = _number(spec, name, _CP) if engine == "trtllm" else (1, ())
    sharing = tp
    if engine == "sglang" and _is_on(spec, name, "enable-dp-attention"):
        sharing, dp = max(1, tp // dp), 1  # its ranks are among those of tensor parallelism
    if engine == "trtllm" and _is_on(spec, name, "enable-attention-dp"):
        sharing = 1
    return prod((tp, pp, dp, cp)), tp_path or dp_path or pp_path, sharing


def gpus_of(spec: DeploymentSpec, name: str) -> int | None:
    """GPUs of one worker; None where nothing tells."""
    role = spec.by_name()[name]
    if spec.engine_of(name).type == "mocker":
        return 0
    if role.gpus is not None:
        return role.gpus
    if spec.backend.is_here:
        needed, where, _ = _ranks(spec, name)
        return needed if where else None
    try:
        return shape_of(spec, name).gpus
    except InputError:
        return None  # the plan says why


def _said_twice(name: str, role: DeployedRole) -> Iterator[Finding]:
    kept = counted(role.args)
    for key, value in role.args.items():
        if value is not None and key not in kept:
            yield Finding(("roles", name, "args", key), f"{dashed(key)} is said again below by another of its names, "
                                                        "which counts", fails=False)  # fmt: skip


def _parallel(spec: DeploymentSpec, name: str, heads: int) -> Iterator[Finding]:
    needed, where, sharing = _ranks(spec, name)
    if not where or spec.engine_of(name).type in ("mocker", "llamacpp"):
        return
    gpus = gpus_of(spec, name)
    if heads and heads % sharing:
        yield Finding(where, f"the model has {heads} attention heads, which {sharing} ranks of {name} cannot share")
    if gpus and needed > gpus:
        yield Finding(where, f"a worker of {name} is for {needed} GPUs, and it has {gpus}")
    elif gpus and needed < gpus:
        yield Finding(where, f"a worker of {name} is for {needed} GPUs, and {gpus - needed} of its {gpus} stay idle",
                      fails=False)  # fmt: skip


def _block_on_cpu(spec: DeploymentSpec, name: str) -> Iterator[Finding]:
    says_cpu = any(key.startswith("VLLM_CPU_") for key in (*spec.env, *spec.by_name()[name].env))
    if spec.engine_of(name).type != "vllm" or not (says_cpu or gpus_of(spec, name) == 0):
        return
    one = said(spec, name, ("block-size",))
    if one and _COUNT.fullmatch(one.value) and int(one.value) % _CPU_BLOCK:
        yield Finding(one.path, f"the block size of {name} is {one.value}: without a GPU, vLLM takes multiples of "
                                f"{_CPU_BLOCK} only")  # fmt: skip


def heads_of(config: Any) -> int:
    """Attention heads of a model by its `config.json`; 0 where it does not say.

    Raises:
        InputError: it is none.
    """
    if not isinstance(config, dict):
        raise InputError("is not a mapping")
    for level in (config, config.get("text_config"), config.get("llm_config")):
        value = level.get("num_attention_heads") if isinstance(level, dict) else None
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"has {brief(repr(value))} for num_attention_heads")
        return value
    return 0


def help_argv(spec: DeploymentSpec, name: str, python: str) -> tuple[str, ...]:
    """What makes the engine of a role print its flags; empty where no command does."""
    return ENGINES[spec.engine_of(name).type].help_argv(Serve(python, frontend=spec.frontend.type))


def check_flags(spec: DeploymentSpec, name: str, help_text: str) -> list[Finding] | None:
    """Flags of a role that its engine does not know; None where the help does not tell."""
    role, engine = spec.by_name()[name], spec.engine_of(name).type
    if not ENGINES[engine].help or known_flags(help_text).isdisjoint(("--model", "--model-path")):
        return None  # Some engines print a summary only.
    by_flag: dict[str, Path] = {words({key: value})[0]: ("roles", name, "args", key)
                                for key, value in role.args.items() if words({key: value})}  # fmt: skip
    found = unknown_flags([*by_flag, *role.extra_args], help_text)
    where: Path = ("roles", name, "extra_args")
    return [Finding(by_flag.get(one.flag, where), f"{engine} does not know {one}") for one in found]

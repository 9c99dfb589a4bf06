"""From the name of a job to an instance of it."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError, RemudaError
from remuda.base.text import did_you_mean
from remuda.batch.job import SwarmJob
from remuda.batch.jobs import BUILT_IN

if TYPE_CHECKING:
    from remuda.batch.request import JobRequest

#: Class names that job files of domyn-swarm use, by our short name.
_OLD_CLASSES = {
    "ChatCompletionJob": "chat",
    "MultiChatCompletionJob": "chat",
    "CompletionJob": "completion",
    "MultiTurnChatCompletionJob": "multi-turn",
    "MultiTurnChatJob": "multi-turn",
    "EmbeddingJob": "embeddings",
    "ChatCompletionPerplexityJob": "perplexity",
    "PerplexityJob": "perplexity",
    "StructuredOutputJob": "structured",
}


def load_class(name: str) -> type[SwarmJob]:
    """The class that `--job` names.

    Args:
        name: a short name, `module:Class` (the working directory is searched too), or a `domyn_swarm.jobs:` name.

    Raises:
        InputError: there is no such job, or it is not a `SwarmJob`.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, colon, class_name = name.partition(":")
    if not colon:
        hint = f"{did_you_mean(name, BUILT_IN)} known: {', '.join(BUILT_IN)}; or module:Class".strip()
        raise InputError(f"there is no job {name!r}", hint=hint, where="job")
    if module_name.startswith("domyn_swarm.jobs"):
        if class_name not in _OLD_CLASSES:
            raise InputError(
                f"domyn_swarm's {class_name} has no counterpart here", hint=f"known: {', '.join(BUILT_IN)}"
            )
        return BUILT_IN[_OLD_CLASSES[class_name]]
    return _import(module_name, class_name)


def _import(module_name: str, class_name: str) -> type[SwarmJob]:
    if (cwd := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, cwd)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            message, hint = f"there is no module {missing!r}", "run from the directory that holds it, or set PYTHONPATH"
        else:
            message, hint = f"{module_name} imports {missing!r}, which is not installed", f"pip install {missing}"
        raise InputError(message, hint=hint, where="job") from error
    except Exception as error:
        place = f"{module_name}: {type(error).__name__}: {error}"
        raise InputError(f"the job's module cannot be imported: {place}", where="job") from error
    found = getattr(module, class_name, None)
    if found is None:
        jobs = [n for n, item in vars(module).items() if inspect.isclass(item) and issubclass(item, SwarmJob)]
        hint = f"it has: {', '.join(item for item in jobs if item != 'SwarmJob')}"
        raise InputError(f"module {module_name} has no {class_name!r}", hint=hint, where="job")
    if not inspect.isclass(found) or not issubclass(found, SwarmJob):
        raise InputError(f"{module_name}:{class_name} is not a SwarmJob", hint="subclass remuda.SwarmJob", where="job")
    return found


def make_job(request: JobRequest, *, endpoint: str, model: str, input_column: str) -> SwarmJob:
    """An instance of the job with the request's settings; `job_kwargs` win over flags left at their defaults.

    Raises:
        InputError: the constructor refuses the arguments.
    """
    kind = load_class(request.job)
    options: dict[str, Any] = {
        "endpoint": endpoint,
        "model": model,
        "input_column_name": input_column or "messages",
        "retries": request.retries,
        "timeout": request.timeout_s,
    }
    if request.max_concurrency:
        options["max_concurrency"] = request.max_concurrency
    if request.checkpoint_interval:
        options["checkpoint_interval"] = request.checkpoint_interval
    if request.output_columns:
        names = list(request.output_columns)
        options["output_cols"] = names[0] if len(names) == 1 else names
    try:
        job = kind(**(options | request.job_kwargs))
    except RemudaError:
        raise
    except Exception as error:
        raise InputError(
            f"job {request.job} cannot be made: {type(error).__name__}: {error}", where="--job-kwargs"
        ) from error
    return job

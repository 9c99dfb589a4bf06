"""`EKSExecutor`: the executor of Kubernetes with the words of DiLoCo's one for EKS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.client.api.executor import Executor
from remuda.specs.strict import split_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.client.api.executor import ReplicaHandle

INSTANCE: Final = "node.kubernetes.io/instance-type"
INSTANCES: Final = {"A100": "p4d.24xlarge", "A10G": "g5.xlarge", "H100": "p5.48xlarge", "T4": "g4dn.xlarge"}
"""Kind of GPU -> type of the instances that have it."""


class EKSExecutor(Executor):
    """Runs replicas as Jobs in a namespace of a cluster, each in `image`.

    Args:
        image: with Python 3.9 or newer, and what the replicas import.
        namespace: where the Jobs are.
        service_account_name: of the pods: with IRSA or Pod Identity it gives them the credentials of the store.
        node_selector: labels that nodes must have; they win over those that `gpu` means.
        tolerations: mappings, objects of the client library, or `KEY[=VALUE][:EFFECT]`; None: with GPUs, their taint.
        runtime_class_name: of the pods.
        command: what is run in the image instead of an entrypoint.
        cpu_request: whole CPUs of a replica.
        memory_request: memory of a replica, also its limit.
        ttl_seconds_after_finished: how long Jobs are kept after their end; an hour at least.
        backoff_limit: how often each replica is restarted after failures (`max_retries`).
        gpu_resource_key: what `gpu` is a number of.
        run_id: what the names of gangs begin with.
        batch_api: None, as is `core_api`.
        fields: further fields of a gang's document: `rendezvous="s3://…"`, `context="prod"`.

    Raises:
        InputError: something of it cannot be meant here; says what.
    """

    supports_inter_replica_network = False

    def __init__(  # noqa: PLR0913 - those that are known
        self,
        image: str,
        *,
        namespace: str = "default",
        service_account_name: str | None = None,
        node_selector: Mapping[str, str] | None = None,
        tolerations: Sequence[Any] | None = None,
        runtime_class_name: str | None = None,
        command: Sequence[str] | str | None = None,
        cpu_request: str | int = "4",
        memory_request: str = "16Gi",
        ttl_seconds_after_finished: int = 3600,
        backoff_limit: int = 0,
        gpu_resource_key: str = "nvidia.com/gpu",
        run_id: str | None = None,
        batch_api: Any = None,
        core_api: Any = None,
        **fields: Any,
    ) -> None:
        for name, api in (("batch_api", batch_api), ("core_api", core_api)):
            if api is not None:
                raise InputError("remuda speaks with the API server itself, by the kubeconfig", where=name,
                                 hint="leave it out; context= and kubeconfig= say which cluster")  # fmt: skip
        if not str(cpu_request).isdigit():
            raise InputError(f"must be whole CPUs, not {cpu_request!r}", where="cpu_request")
        said = {
            "service_account": service_account_name, "runtime_class": runtime_class_name,
            "tolerations": [_toleration(one) for one in tolerations or ()] or None,
        }  # fmt: skip
        super().__init__("kubernetes", **{
            "image": image, "namespace": namespace, "cpus_per_task": int(cpu_request), "mem": memory_request,
            "ttl": ttl_seconds_after_finished, "max_retries": backoff_limit, "gpu_resource": gpu_resource_key,
            **{name: value for name, value in said.items() if value is not None}, **fields,
        })  # fmt: skip
        self._selector, self._base = dict(node_selector or {}), run_id or "diloco"
        self._command = split_words(command) if isinstance(command, str) else tuple(command or ())

    def launch_replicas(
        self,
        n_replicas: int,
        entrypoint: str | Callable[..., Any] = "",
        entrypoint_args: Mapping[str, Any] | Sequence[str] = (),
        *,
        gpu: str | int | None = None,
        timeout: float = 3600.0,
    ) -> list[ReplicaHandle]:
        """Launch a gang, as `Executor` does.

        Args:
            n_replicas: how many.
            entrypoint: what each runs, unless there is a `command`.
            entrypoint_args: its arguments.
            gpu: GPUs of each: a number, or a kind and a number (`H100`, `H100:8`).
            timeout: seconds after which all are ended, and have failed; 0: never.

        Raises:
            InputError: something is wrong with what was asked; says what.
        """
        args = entrypoint_args
        if isinstance(args, Mapping):  # this one is for processes of one machine
            args = {key: value for key, value in args.items() if key != "rank_env"}
        return super().launch_replicas(n_replicas, entrypoint, args, gpu=gpu, timeout=timeout)

    def _resources(self, gpu: str | int | None) -> dict[str, Any]:
        kind, _, count = str(gpu or 0).partition(":")
        selector = {}
        if isinstance(gpu, str):
            if kind not in INSTANCES or not (count or "1").isdigit():
                known = ", ".join(INSTANCES)
                raise InputError(f"no type of instance is known for {gpu!r}", where="gpu",
                                 hint=f"known: {known}; of others give a number, and a node_selector")  # fmt: skip
            selector, kind = {INSTANCE: INSTANCES[kind]}, count or "1"
        return {"node_selector": {**selector, **self._selector}, "resources": {"gpus": int(kind)}}


def _toleration(said: Any) -> str:
    """A toleration as documents have it.

    Raises:
        InputError: they have no such.
    """
    if isinstance(said, str):
        return said
    get = said.get if hasattr(said, "get") else lambda name: getattr(said, name, None)
    key, operator, value, effect = map(get, ("key", "operator", "value", "effect"))
    if not key:
        raise InputError(f"a toleration needs a key, and this has none: {said!r}", where="tolerations")
    return f"{key}{'' if operator == 'Exists' else f'={value or str()}'}{f':{effect}' if effect else ''}"

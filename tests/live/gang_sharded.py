"""One process of a copy of two, started by torchrun: DDP, FSDP2, and what is refused. `make gang-torch` runs it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from remuda.base.errors import RemudaError
from remuda.gang import DiLoCo, ObjectStoreAllReduce
from remuda.gang.models import parameters_of

EVERY, ROUNDS = 3, 4


def new_model() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))  # 5 rows on 2 processes.


def train(name: str, model: Any) -> torch.Tensor:
    """The same data in both processes of a copy, so that one process would come to the same."""
    data = torch.Generator().manual_seed(int(os.environ["REPLICA_RANK"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    store = ObjectStoreAllReduce(run_id=f"run-{name}", timeout=120)
    with DiLoCo(model, optimizer, store, sync_every=EVERY) as diloco:
        while diloco.steps < EVERY * ROUNDS:
            x = torch.randn(8, 7, generator=data)
            optimizer.zero_grad()
            ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
            optimizer.step()
    assert (store.counts.puts > 0) == (dist.get_rank() == 0), "only process 0 speaks to the store"
    whole = [one.full_tensor() if hasattr(one, "placements") else one for one in model.parameters()]
    return torch.cat([one.detach().flatten() for one in whole])


def refused(act: Any, words: str) -> None:
    message = "nothing was raised"
    try:
        act()
    except RemudaError as error:
        message = error.message
    assert words in message, message


def main() -> None:
    dist.init_process_group("gloo")
    number = dist.get_rank()
    results = {"ddp": train("ddp", DistributedDataParallel(new_model()))}
    sharded = new_model()
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer)
    results["fsdp"] = train("fsdp", sharded)
    torch.testing.assert_close(results["ddp"], results["fsdp"], rtol=1e-5, atol=1e-5)
    for name, values in results.items():
        digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()
        Path(os.environ["OUT"], f"{name}-{os.environ['REPLICA_RANK']}-{number}.weights").write_text(f"{name} {digest}")

    apart = new_model()
    with torch.no_grad():
        apart[2].bias.fill_(number)
    refused(lambda: parameters_of(apart), "parameter 2.bias is not a DTensor and differs")
    fewer = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(2))} if number else {})
    refused(lambda: parameters_of(fewer), "parameter a is not in all processes")
    with torch.device("meta"):
        empty = torch.nn.Linear(2, 2)
    refused(lambda: parameters_of(empty), "parameter weight has no values yet")
    # What process 0 raises ends the others, too.
    bad = DiLoCo(DistributedDataParallel(new_model()), None, ObjectStoreAllReduce(run_id="run-ddp", codec="int8"))
    refused(bad.start, "run 'run-ddp' has codec fp32")
    mixed = ObjectStoreAllReduce(run_id="other", rank=number, world_size=2)
    if number:
        refused(DiLoCo(DistributedDataParallel(new_model()), None, mixed).start, "one copy")
    else:
        parameters_of(DistributedDataParallel(new_model())).share(lambda: mixed.rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

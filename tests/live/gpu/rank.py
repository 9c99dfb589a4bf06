"""One rank of a gang that trains a model of torch, all on one GPU: the command of the step «gang» of `make gpu`."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from remuda.gang import DiLoCo, ObjectStoreAllReduce

EVERY, ROUNDS = 10, 5


def main(device: str, out: str) -> None:
    """Train so many rounds, and write down what came of it."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh(), torch.nn.Linear(512, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    store = ObjectStoreAllReduce(timeout=60)
    data, losses = torch.Generator().manual_seed(store.rank), []
    with DiLoCo(model, optimizer, store, sync_every=EVERY) as diloco:
        while store.round < ROUNDS:
            x = torch.randn(64, 512, generator=data).to(device)
            optimizer.zero_grad()
            loss = ((model(x) - x[:, :1]) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        steps = diloco.steps
    held = torch.cat([one.detach().flatten().cpu() for one in model.parameters()]).numpy().tobytes()
    name = torch.cuda.get_device_name(0) if device == "cuda" else device
    told = {
        "rank": store.rank, "device": name, "steps": steps, "first": losses[0], "last": losses[-1],
        "sha": hashlib.sha256(held).hexdigest(), "bytes": len(held),
    }  # fmt: skip
    Path(out, f"rank-{store.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

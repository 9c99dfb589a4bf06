"""Trains a small model of torch with checkpoints, told how far it is: the script of the step «run» of `make gpu`.

Started anew it goes on from the last checkpoint. DEVICE, OUT and STEPS come from the environment.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

EVERY = 10


def main() -> None:
    """Train to the last step."""
    torch: Any = importlib.import_module("torch")
    progress: Any = importlib.import_module("remuda_progress").progress
    device, out, steps = os.environ["DEVICE"], Path(os.environ["OUT"]), int(os.environ["STEPS"])
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin, kept, loss = 0, out / "checkpoint.pt", None
    if kept.exists():
        state = torch.load(kept, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    name = torch.cuda.get_device_name(0) if device == "cuda" else device
    with (out / "lives.jsonl").open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "begin": begin, "device": name}) + "\n")
    for step in range(begin + 1, steps + 1):
        x = torch.randn(256, 64, generator=torch.Generator().manual_seed(step)).to(device)
        loss = ((model(x) - torch.sin(x).sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)  # As if a step took its time: there has to be one in which it can be killed.
        if step % EVERY == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, out / "draft.pt")
            (out / "draft.pt").replace(kept)
            (out / "step").write_text(str(step))
            progress(step, steps, loss=float(loss))
            with (out / "losses.jsonl").open("a") as file:
                file.write(json.dumps([step, float(loss)]) + "\n")


if __name__ == "__main__":
    main()

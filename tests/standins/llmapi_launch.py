"""In the place of TensorRT-LLM's `trtllm-llmapi-launch`: `python llmapi_launch.py COMMAND…`, with Open MPI's library.

All ranks call MPI_Init, which ends the program where the step that started it cannot bring them together. The first
runs the command; the others wait, as TensorRT-LLM's do, until all are ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys


def main() -> int:
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
    rank, size = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Init(None, None)
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    said = f"{os.environ.get('SLURMD_NODENAME')}, shares {os.environ.get('TRTLLM_EPLB_SHM_NAME')}"
    print(f"rank {rank.value} of {size.value} is on {said}", flush=True)
    if rank.value == 0:
        return subprocess.run(sys.argv[1:], check=False).returncode
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())

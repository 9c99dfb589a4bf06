"""The Python API: `Swarm`, `Executor`, and the program that calls a function as a rank."""

"""The one server process: runs the supervisor, takes reports of nodes, answers the HTTP API.

`service` is the only writer of intents; what makes the world equal to them beside the loop is in `reconcilers/`.
Nothing here waits for a user or knows the client. Begin with `server`.
"""

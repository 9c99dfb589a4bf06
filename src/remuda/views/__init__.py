"""What is known of workloads, jobs and nodes, as everybody shows it: rows of the board, views of the API, queries.

The host answers from here, and a command reads the same where no host runs. Nothing here changes a row or asks a
scheduler. Begin with `queries`.
"""

"""A fleet: a Slurm that the host starts, and whose nodes join by themselves. Nothing here schedules.

`conf` says what Slurm and munge read (pure), `tree` where their programs are, `processes` keeps daemons, and
`daemons` has the two sides: `Controller` on the head, `Node` on a machine that joined. Begin with `daemons`.

On the head `head` is what is recorded of it, `token` and `roll` who may join and has joined, `admission` and `health`
(pure) why a machine cannot, and what is wrong with it. On a node `joining` is what commands do, `client` the program.

What is not here: the server that nodes talk to (the host's), how jobs are submitted (the Slurm backend does, as to any
Slurm), and what a user sees. This room knows no backend, and asks nobody over the network but slurmctld and the head.
"""

"""A fleet: a Slurm that the host starts, and whose nodes join by themselves. Nothing here schedules.

`conf` says what Slurm and munge read (pure), `tree` where their programs are, `processes` keeps daemons, and
`daemons` has the two sides: `Controller` on the head, `Node` on a machine that joined. Begin with `daemons`.

What is not here: how a node gets key and configuration, how jobs are submitted (the Slurm backend does, as to any
Slurm), and what a user sees. This room knows no backend, and asks nobody over the network but slurmctld.
"""

"""The commands around the work: `config`, `init`, `host`, `db`, `doctor`, `try`, `demo`, `rehearse`."""

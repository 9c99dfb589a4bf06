"""How each engine is started: argv, environment, ports and probes. Pure."""

"""One supervised child: started, probed, restarted in place, and reported. `machine` decides and `loop` acts."""

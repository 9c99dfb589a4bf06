"""What is found out before a plan is made: the caller's surroundings, files, programs. The only input of planning."""

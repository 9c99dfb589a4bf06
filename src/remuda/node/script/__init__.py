"""What is done for a script beyond starting it: its progress, faults in its output, the processes of its job."""

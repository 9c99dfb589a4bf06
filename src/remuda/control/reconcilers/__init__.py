"""What runs beside the loop and makes something outside equal to a level: one file each."""

"""What runs beside the supervisor's loop and makes the world equal to what it holds: a file for each thing.

None of them writes intents but the reaper. Begin with `every`, which lists them.
"""

"""POWER's equations on arrays, and the memory of tasks that it shares with its rivals."""

"""POWER's equations on arrays, and the local training that it shares with its rivals."""

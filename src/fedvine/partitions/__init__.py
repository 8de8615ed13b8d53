"""Ways to deal nodes to clients: one file each, ``partition(stream, k, seed) -> int [nodes]``."""

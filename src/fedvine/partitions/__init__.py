"""Ways to assign nodes to clients, one a file: ``partition(stream, k, seed) -> int [nodes]``."""

"""Exports of each method: parts of its memory, and the scripts that load them (load_*.py)."""

"""What of each method's memory goes into an export, and the scripts that load it (load_*.py)."""

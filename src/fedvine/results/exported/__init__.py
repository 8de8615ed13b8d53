"""What an export has of a model (``models.py``), and the scripts that load it."""

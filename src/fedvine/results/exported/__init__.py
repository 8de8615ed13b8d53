"""Write a model as plain files (``models.py``), with a script that loads it."""

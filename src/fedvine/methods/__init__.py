"""The papers' methods, ours, and rules without a model; a class's ``name`` is the one to type."""

"""Federated learning on graphs that grow."""

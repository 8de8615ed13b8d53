"""MOTION's parts on arrays: coarsening of a graph, and merging of updates."""

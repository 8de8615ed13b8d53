"""Forecasts and labels of a server that holds the graph: its run folder keeps them."""

from __future__ import annotations

from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.labels import Labels
from fedvine.experiments.run import Run
from fedvine.federation.kept_answers import FILES, keep


def forecast_here(made: Run, count: int) -> None:
    """Write the labels of all nodes, or the likeliest ``count`` items of every user.

    The clients compute what scores need, so this comes before they leave.
    """
    assert made.folder is not None
    out = made.folder.path
    if made.protocol.data == "classes":
        keep(out / FILES["labels"], Labels(made).table(), "labels")
    else:
        Forecasts(made).every(count, out / FILES["forecasts"])

"""Experiment files, runs and run folders, and forecasts of a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment
    from fedvine.experiments.forecasts import Forecasts
    from fedvine.experiments.run import Run
    from fedvine.experiments.track import tracked

__all__ = ["Experiment", "Forecasts", "Run", "tracked"]
__getattr__, __dir__ = lazy(__name__, Experiment="experiment", Forecasts="forecasts", Run="run",
                            tracked="track")

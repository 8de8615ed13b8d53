"""Estimators with the interface of scikit-learn: forecasts of links, and classes of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.sklearn.links import LinkForecaster
    from fedvine.sklearn.nodes import NodeClassifier

__all__ = ["LinkForecaster", "NodeClassifier"]
__getattr__, __dir__ = lazy(__name__, LinkForecaster="links", NodeClassifier="nodes")

"""1,797 handwritten digits, each joined to the five most similar; 10 classes. No download.

Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998,
https://doi.org/10.24432/C50P49 (CC BY 4.0): the test part, as it comes with scikit-learn.

A picture has 64 features, 8 x 8 shades from 0 to 1 (in steps of 1/16). Two are joined if one is
among the five nearest of the other, by Euclidean distance; of equal ones the earlier is taken. A
graph for trials that is there on every machine: 6,309 edges. Three clients, two classes a task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph

SPLIT: dict = {"by": "louvain", "k": 3}
STAGES: str | int = 2
SHARES = (0.2, 0.4, 0.4)

_K = 5      # neighbours


def load(folder: Path | None = None) -> Graph:
    """Return the graph, with dense features; the same on every machine.

    Raises :class:`FedvineError` if ``folder`` is given: scikit-learn brings the data.
    """
    if folder is not None:
        raise FedvineError("The digits come with scikit-learn; leave out the folder.")
    from sklearn.datasets import load_digits
    found: Any = load_digits()
    shades = found.data     # whole numbers from 0 to 16, so the distances are exact
    length = (shades ** 2).sum(1)
    distance = length[:, None] + length - 2 * shades @ shades.T
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :_K]
    ends = np.repeat(np.arange(len(shades)), _K), nearest.reshape(-1)
    return Graph.make(shades / 16, np.stack(ends), found.target, name="digits")

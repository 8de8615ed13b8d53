"""FedAvg (McMahan et al. 2017) on class-incremental tasks, without a measure against forgetting."""

from __future__ import annotations

from typing import ClassVar

from fedvine.methods._power.training import Continual


class FedAvg(Continual):
    """Local epochs and averaging, task after task."""

    name: ClassVar[str] = "fedavg"

"""Check whether data fit an experiment, and say how a table without clients is split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedvine.core.errors import FedvineError
from fedvine.data import plan
from fedvine.data.graph import Graph
from fedvine.data.io.checks import ask_about_stages
from fedvine.data.stream import EventStream

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment


def check(experiment: Experiment, stream: Any) -> None:
    """Raise :class:`FedvineError` where the data are not what the task and the split need.

    Also where a time of a table is far from all others, or stages of edges are thousands, unless
    the experiment is sure.
    """
    method, split = experiment.method, experiment.resolved().split
    if isinstance(stream, Graph) != (experiment.protocol.data == "graph"):
        raise FedvineError(f"{method.name} answers for {method.task}s; {stream.name} is " + (
            "a labelled graph; choose a method for nodes, such as power_plus."
            if isinstance(stream, Graph) else "a stream of edges; choose a method for links, such "
            "as fedlink_plus, or name a table of nodes as data, and its edges with --edges."))
    if isinstance(stream, EventStream) and not (experiment.data.dataset or experiment.data.sure):
        stages = experiment.protocol.stage_size(stream, experiment.resolved().stages)
        plan.ask_about_far(stream.name, stream.order, stages, stream.dates)
        if experiment.stages is not None:
            ask_about_stages(len(stream), stages, stream.name)
    owner = getattr(stream, "owner", None)
    if experiment.split.k is not None and split.by in (
            *getattr(stream, "codes", ()), *((owner.column, "client") if owner else ())):
        raise FedvineError("k (--k) is the number of clients of a partition, and "
                           f'{stream.name} is split by its column "{split.by}"; leave out k, or '
                           "name a partition with --split, such as louvain.")


def dealt(experiment: Experiment, count: int) -> tuple[str, ...]:
    """Return the note on a table without clients, which is dealt to ``count`` of them."""
    given, data = experiment.split, experiment.data
    if data.dataset or data.client or given.by or given.k is not None or given.clients:
        return ()
    return (f"No column of clients was named, so the {experiment.protocol.unit} are split into "
            f"{count} clients by {experiment.resolved().split.by}; name a column with --client, or "
            "say how with --split and --k.",)

"""The texts behind ``fedvine show``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tomlkit
from rich.console import RenderableType
from rich.table import Table

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.core.method import Method
from fedvine.core.settings import fields
from fedvine.data.graph import Graph
from fedvine.data.spec import load
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.results.tune import searched, span
from fedvine.results.view import RunView


def described(name: str) -> Iterator[RenderableType]:
    """Yield a method with its fields, a data set with its size, or an experiment with all its keys.

    ``name`` may also be a TOML file, a Python file with a method, or a run folder. Raises
    :class:`FedvineError` if it is none of these.
    """
    methods, datasets, partitions = (registry.methods(), registry.names("datasets"),
                                     registry.names("partitions"))
    if name in methods:
        yield from _method(methods[name])
    elif name in datasets:
        yield from _dataset(name)
    elif name in partitions:
        yield inspect.getdoc(registry.find("partitions", name)) or name
    elif Path(name).is_dir():
        yield from _folder(name)
    elif Path(name).suffix == ".py":
        yield from _method(registry.from_file(name))
    elif Path(name).suffix == ".toml":
        yield _toml(Experiment.read(name))
    else:
        raise FedvineError(f'There is nothing called "{name}"'
                           f"{near(name, [*methods, *datasets, *partitions])}; fedvine list shows "
                           "all, and show also takes an experiment's TOML file or a run folder.")


def _method(method: type) -> Iterator[RenderableType]:
    assert issubclass(method, Method)
    module = inspect.getmodule(method)
    yield f"{inspect.getdoc(method)}\n\n{inspect.getdoc(module) or ''}\n"
    table = Table("field", "type", "default", "what it is", box=None)
    for name, field in fields(method).items():
        table.add_row(name, kind_text(field.annotation, field.metadata), repr(field.default),
                      field.description or "")
    yield table
    ranges = ", ".join(f"{k} {span(v)}" for k, v in searched(method()).items())
    if ranges:
        yield f"\nfedvine tune searches {ranges}."


def _folder(name: str) -> Iterator[RenderableType]:
    """Yield a run folder's experiment; without one (a federation) its facts and its scores."""
    found = run_folder.read_experiment(name)
    if "experiment" in found["data"]:
        yield _toml(Experiment.of_run(name))
        return
    yield tomlkit.dumps(found).strip() + "\n"
    yield from RunView.read(name).printed() if run_folder.read_summary(name) else [
        "Not finished; what started it, given again, goes on."]


_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "length >="}


def kind_text(kind: Any, bounds: Iterable[Any] = ()) -> str:
    """Return a type and its bounds as a person would write them."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        text = kind_text(inside[0], (b for m in inside[1:] for b in getattr(m, "metadata", [m])))
    elif origin is Literal:
        text = " | ".join(map(repr, inside))
    elif origin in (Union, UnionType):
        text = " | ".join(map(kind_text, inside))
    elif origin is not None:
        parts = ("..." if part is ... else kind_text(part) for part in inside)
        text = f"{origin.__name__}[{', '.join(parts)}]"
    else:
        text = "none" if kind is type(None) else getattr(kind, "__name__", str(kind))
    return " ".join([text, *(f"{sign} {getattr(bound, name)}" for bound in bounds
                             for name, sign in _SIGNS.items() if hasattr(bound, name))])


def _dataset(name: str) -> Iterator[RenderableType]:
    module: Any = registry.find("datasets", name)
    yield f"{inspect.getdoc(module)}\n"
    stream = load(name)
    if isinstance(stream, Graph):
        yield from _graph(stream, module)
        return
    report = stream.split(**module.SPLIT).report()
    first, last = float(stream.t[0]), float(stream.t[-1])
    time = (f"in {(last - first) / 86400:,.1f} days" if last - first > 3600 else
            f"at times {first:g} to {last:g}")
    nodes = (f"of {stream.num_src:,} users to {stream.num_dst:,} items" if stream.bipartite else
             f"between {stream.num_src:,} nodes" + ("" if stream.directed else
                                                    ", without a direction,"))
    yield (f"{len(stream):,} edges {nodes} {time}; stages of {module.STAGES}, split by "
           f"{report['by']}:\n")
    if stream.nodes is not None:
        yield f"Nodes have classes over time: {', '.join(stream.nodes.classes)}.\n"
    yield _clients(report, "edges", "users", "items", "shared users")


def _graph(graph: Graph, module: Any) -> Iterator[RenderableType]:
    report = graph.split(**module.SPLIT).report()
    yield (f"{len(graph):,} nodes, {graph.edges.shape[1]:,} edges, {graph.features:,} features, "
           f"{len(graph.classes)} classes; {module.STAGES} classes a task, split by "
           f"{report['by']} (cuts {report['cut']:.1%} of the edges):\n")
    yield _clients(report, "nodes", "edges", "classes")


def _clients(report: dict[str, Any], *columns: str) -> Table:
    table = Table("client", box=None)
    for column in columns:
        table.add_column(column, justify="right")
    for client, facts in report["clients"].items():
        table.add_row(client, *(f"{facts[column.replace(' ', '_')]:,}" for column in columns))
    return table


def _toml(experiment: Experiment) -> str:
    values = experiment.plain()
    plain = {k: v for k, v in values.items() if not isinstance(v, dict)}
    return tomlkit.dumps({**plain, **{k: v for k, v in values.items() if k not in plain}}).strip()

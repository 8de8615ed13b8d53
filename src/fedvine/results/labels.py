"""The names of the rows of a comparison, and what the names do not say of their settings."""

from __future__ import annotations

from collections.abc import Sequence

from fedvine.core import registry
from fedvine.core.device import without
from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.experiments.experiment import Experiment


def labels(wanted: Sequence[Experiment]) -> list[str]:
    """Return the methods' names, with what differs where a name occurs twice.

    That is the file, where the code differs, and settings. Raises :class:`FedvineError` where two
    experiments have the same code and settings.
    """
    found = []
    for method in (e.method for e in wanted):
        same = [e.method for e in wanted if e.method.name == method.name]
        file = _files(same).get(method.file_digest)
        differ = [*([file] if file else []), *_texts(method, _differing(method, wanted))]
        found.append(f"{method.name} ({', '.join(differ)})" if differ else method.name)
    if len(set(found)) < len(found):
        twice = next(x for x in found if found.count(x) > 1)
        raise FedvineError(f"{twice} is there twice with the same settings; leave one out.")
    return found


def unsaid(wanted: Sequence[Experiment]) -> list[str]:
    """Return for each method its settings that are not in its label and not the defaults."""
    found = []
    for method in (e.method for e in wanted):
        said = _differing(method, wanted)
        fields = type(method).model_fields
        own = [k for k, v in without(dict(method)).items() if k not in said
               and v != fields[k].get_default(call_default_factory=True)]
        found.append(", ".join(_texts(method, own)))
    return found


def _differing(method: Method, wanted: Sequence[Experiment]) -> list[str]:
    """Return the settings in which a method differs from others of its name and code."""
    others = [dict(e.method) for e in wanted if e.method.name == method.name
              and e.method.file_digest == method.file_digest]
    return [k for k, v in without(dict(method)).items() if any(x[k] != v for x in others)]


def _texts(method: Method, keys: Sequence[str]) -> list[str]:
    values = method.model_dump()
    return [f"{k}={values[k]}" for k in keys]


def _files(same: Sequence[Method]) -> dict[str, str]:
    """Return the names of the methods' files by digest; none where all have the same code."""
    if len({m.file_digest for m in same}) == 1:
        return {}
    paths = {m.file_digest: registry.path_of(type(m)) for m in same if m.file_digest}
    names = [path.name for path in paths.values()]
    return {digest: path.name if names.count(path.name) == 1 else str(path)
            for digest, path in paths.items()}

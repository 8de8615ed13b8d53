"""Memory of server and clients when the facts of the world have grown, for example its classes.

A memory of the larger world is made as at the start of a run, and all values so far are put into it
at the same place. So a method does not know about growth: what depends on the number of classes
starts at its ``start`` and ``setup`` as ever, and rows of classes that are new have those values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.state import Memory


def grow(memory: Memory, fresh: Memory) -> None:
    """Enlarge every value of a memory to that of its name in ``fresh``, by :func:`enlarged`.

    ``fresh`` is a memory of the same method in a larger world; what it does not have stays.
    """
    for name, new in vars(fresh).items():
        if name not in memory.given and name in vars(memory):
            setattr(memory, name, enlarged(vars(memory)[name], new))


def enlarged(old: Any, new: Any) -> Any:
    """Return ``new`` with the values of ``old``.

    A larger array or tensor gets them at the lowest indices of every axis, and one that is not
    larger gives way to ``old``. Modules and optimisers are those of ``new``; an optimiser's state
    of new values is 0. Of dicts the values of the same key are enlarged; the other keys are those
    of ``old``.
    """
    if hasattr(new, "param_groups"):
        new.load_state_dict(_moments(old.state_dict(), new))
        return new
    if hasattr(new, "state_dict"):
        new.load_state_dict(enlarged(dict(old.state_dict()), dict(new.state_dict())))
        return new
    if isinstance(old, dict) and isinstance(new, dict):
        return {k: enlarged(v, new[k]) if k in new else v for k, v in old.items()}
    return _block(old, new)


def _block(old: Any, new: Any) -> Any:
    """Return ``new`` with ``old`` in its first corner, or ``old`` where it is not smaller."""
    if not hasattr(old, "shape"):
        return old
    small, large = np.shape(old), np.shape(new)
    if len(small) != len(large) or small == large or any(
            a > b for a, b in zip(small, large, strict=True)):
        return old
    found = new.clone() if hasattr(new, "clone") else new.copy()
    found[tuple(map(slice, small))] = old
    return found


def _moments(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """Return an optimiser's state with zeros for the new values of its parameters."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    held = {i: {key: _block(value, params[i].detach() * 0) if np.ndim(value) else value
                for key, value in parts.items()} for i, parts in state["state"].items()}
    return {**state, "state": held}

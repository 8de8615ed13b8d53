"""Finished searches of settings: a line each beside the kept cells, and their text on pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import Job, kept_beside
from fedvine.results.kept import Identity, Kept

FOLDER = "tuned"        # below the folder of kept cells
SHIPPED = "shipped defaults"


@dataclass(frozen=True)
class Search:
    """A finished search: the settings with the best validation score, and how they were found."""

    method: str
    data: str
    score: str
    trials: int
    early: int              # of them stopped early
    seed: int               # the first one
    fields: dict[str, Any]
    value: float            # the mean over the seeds
    shipped: float | None   # the score of the settings as shipped
    space: dict[str, str]   # what was searched, as :func:`span` says it
    seeds: int = 1

    def __str__(self) -> str:
        last = self.seed + self.seeds - 1
        which = f"seeds {self.seed} to {last}" if self.seeds > 1 else f"seed {self.seed}"
        return f"tuned on validation of {which}, {self.trials} trials"

    @property
    def stayed(self) -> bool:
        """Return whether no setting was above the defaults, which are taken then."""
        return self.value == self.shipped

    def comment(self) -> list[str]:
        """Return the comment lines above the chosen settings."""
        won = ("the defaults, which no other setting was above" if self.stayed else
               "the setting found" if self.shipped is None else
               f"the setting found; the defaults have {self.shipped:.4g}")
        return [f"{self.method} on {self.data}, {self}, {self.early} of them stopped early.",
                f"Best validation {self.score} {self.value:.4g}: {won}.",
                "Searched: " + ", ".join(f"{k} {v}" for k, v in self.space.items()) + "."]


def span(what: Any) -> str:
    """Return a range (a tuple) or the choices (a list) of a method's ``space`` as text."""
    if isinstance(what, list):
        return "of " + ", ".join(map(str, what))
    low, high, *how = what
    return f"{low} to {high}" + (" (log)" if how else "")


def _said(what: Any) -> str:
    """Return the text of a kept line's range; earlier lines have a list for a range, too."""
    if isinstance(what, str):
        return what
    range_ = what[2:] == ["log"] or (len(what) == 2 and all(isinstance(v, float) for v in what))
    return span(tuple(what) if range_ else what)


def keep(cell: Job, search: Search) -> None:
    """Write the line of a search; ``cell`` is the experiment as it was before, with its seed."""
    assert cell.kept is not None and cell.content is not None
    line = {"method": search.method, "data": cell.data, "seed": search.seed,
            "content": cell.content, "revision": cell.identity.revision,
            "settings": cell.identity.settings, "summary": asdict(search)}
    Kept(cell.kept.folder / FOLDER).keep(cell.identity, line)


def found(experiment: Experiment, seed: int, folder: str | Path) -> Search | None:
    """Return the search for this experiment with this seed, None without one."""
    wanted = Identity(experiment.model_copy(update={"seed": seed}))
    line = Kept(kept_beside(folder) / FOLDER).find(wanted)
    if line is None:
        return None
    found = Search(**line["summary"])
    return replace(found, space={name: _said(what) for name, what in found.space.items()})


def stated(method: Mapping[str, Any] | None, search: Search | None) -> str:
    """Return the text of a row's settings on a page; ``method`` are those of the page's file."""
    own = ", ".join(f"{k} = {v}" for k, v in (method or {}).items() if k != "name")
    if search is not None:
        chosen = SHIPPED if search.stayed else ", ".join(
            f"{k} {v}" for k, v in search.fields.items())
        return f"{search} ({chosen})" + (f", with {own}" if own else "")
    return SHIPPED + (f" but {own}" if own else "")

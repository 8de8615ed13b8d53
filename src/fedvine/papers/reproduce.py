"""``fedvine reproduce``: the table or figure of a paper by its name, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from fedvine.core.errors import FedvineError, near
from fedvine.datasets import at_hand
from fedvine.papers import (
    dgcolearn,
    dgcolearn_runs,
    fedlink,
    figures,
    forecasts,
    power,
    published,
    tables,
    tgb,
)
from fedvine.papers.figures import Figure
from fedvine.papers.published import PaperTable
from fedvine.papers.study import Study, carry_out, planned
from fedvine.papers.tables import Lacks, lacking
from fedvine.results.cells import FOLDER, opened_once
from fedvine.results.fill import CAP, SEEDS, Budget, Rows, Tell, Work, fill_pages
from fedvine.results.tables import TableSet

#: Pages that are written in Python; the others are ``.toml`` files.
STUDIES: dict[str, Callable[[], Study]] = {
    **power.STUDIES, **dgcolearn.STUDIES, **dgcolearn_runs.STUDIES, **fedlink.STUDIES,
    **tgb.STUDIES, **forecasts.STUDIES}
ALL = "all"
LEFT_OUT = "left as it is, as its page says."


def names() -> list[str]:
    """List the tables and figures that can be reproduced."""
    return sorted([*published.names(), *figures.names(), *STUDIES])


def study(name: str) -> Study:
    """Return the study of a table or figure. Raises :class:`FedvineError` for an unknown name."""
    _known(name)
    if name in STUDIES:
        return STUDIES[name]()
    if name in figures.names():
        return figures.study(Figure.named(name))
    return tables.study(PaperTable.named(name))


def _known(name: str) -> None:
    if name not in names():
        raise FedvineError(f'There is no table called "{name}"{near(name, [*names(), ALL])}; there '
                           f"are {', '.join(names())}.")


def reproduce(name: str, *, only: str | None = None, seeds: int | None = None,
              budget: float | None = None, cap: float | None = CAP, jobs: int = 1,
              folder: str | Path = FOLDER, tell: Tell = print) -> TableSet:
    """Set the cells of the table or figure ``name`` (one of :func:`names`) beside the paper's.

    ``only`` are the experiments wanted, by number or by a part of their name, with commas between
    them. ``seeds`` are :data:`fedvine.results.fill.SEEDS` if not said, and fewer where runs are
    slow. Cells that are kept are taken from there (:func:`fedvine.results.cells.cells`); others are
    run and kept. ``budget`` (CPU seconds) and ``jobs`` are those of
    :func:`fedvine.results.fill.fill_pages`; the cells of a page take at most ``cap`` CPU seconds.
    What is left over is marked. Raises :class:`FedvineError` for an unknown name or experiment.
    """
    return carry_out(study(name), only=only, seeds=_count(seeds), jobs=jobs, folder=folder,
                     budget=Budget(budget, cap, fewer=seeds is None), tell=tell)


def lacks(name: str, *, only: str | None = None, seeds: int | None = None,
          folder: str | Path = FOLDER) -> dict[str, Lacks]:
    """Return what a paper's table lacks, see :func:`fedvine.papers.tables.lacking`; run nothing.

    Nothing is downloaded: where data are not at hand, the content of kept cells is not compared.
    With ``name`` :data:`ALL` it is that of each of the papers' tables, by name.

    Raises :class:`FedvineError` for a name that is no paper's table.
    """
    tables = published.names()
    if name == ALL:
        if only:
            raise FedvineError("--only belongs to one page; leave it out.")
        return {table: lacks(table, seeds=seeds, folder=folder)[table] for table in sorted(tables)}
    _known(name)
    if name not in tables:
        raise FedvineError(f"{name} is no paper's table with rows to check; --check is for all, or "
                           f"for one of {', '.join(sorted(tables))}.")
    with at_hand():
        return {name: lacking(PaperTable.named(name), only, _count(seeds), folder)}


def estimate(name: str = ALL, *, only: str | None = None, seeds: int | None = None,
             folder: str | Path = FOLDER) -> dict[str, tuple[int, float]]:
    """Return how many cells pages lack, and CPU seconds estimated from similar ones; run nothing.

    The cheapest page comes first, and last :data:`ALL` of them, each cell once. Nothing is
    downloaded, and cells without data are left out. Raises :class:`FedvineError` for an unknown
    name or experiment.
    """
    if name == ALL and only:
        raise FedvineError("--only belongs to one page; leave it out.")
    found, every = {}, {}
    with opened_once(), at_hand():
        for page in names() if name == ALL else [name]:
            rows = list(planned(study(page), only, _count(seeds), folder).cells.values())
            work = Work([rows], Budget(fewer=seeds is None))
            prices = {cell.folder: work.price[cell.folder] for cell in iter(work.next, None)}
            found[page], every = (len(prices), sum(prices.values())), every | prices
    return {**dict(sorted(found.items(), key=lambda item: item[1][1])),
            ALL: (len(every), sum(every.values()))}


def reproduce_all(*, seeds: int | None = None, budget: float | None = None,
                  cap: float | None = CAP, jobs: int = 1, folder: str | Path = FOLDER,
                  tell: Tell = print, without: Collection[str] = ()
                  ) -> dict[str, TableSet | str]:
    """Run what is missing of every table and figure, then make all pages.

    First seeds are run before second ones, the cheapest first. Names in ``without`` are left out.
    Returns the page of each name, or the sentence why there is none.
    """
    with opened_once():
        return _all(_count(seeds), Budget(budget, cap, fewer=seeds is None), jobs, folder, tell,
                    without)


def _all(seeds: int, limit: Budget, jobs: int, folder: str | Path, tell: Tell,
         without: Collection[str]) -> dict[str, TableSet | str]:
    pages: dict[str, Rows] = {}
    found: dict[str, TableSet | str] = {name: LEFT_OUT for name in names() if name in without}
    for name in (name for name in names() if name not in without):
        try:
            pages[name] = list(planned(study(name), None, seeds, folder).cells.values())
        except FedvineError as error:
            found[name] = str(error)
    try:
        fill_pages(list(pages.values()), jobs=jobs, budget=limit, tell=tell)
    except FedvineError as error:
        tell(str(error))
    for name in pages:
        try:
            found[name] = carry_out(
                study(name), seeds=seeds, jobs=jobs, folder=folder, tell=tell,
                budget=Budget(0, limit.cpu, fewer=limit.fewer))
        except FedvineError as error:
            found[name] = str(error)
    return dict(sorted(found.items()))


def _count(seeds: int | None) -> int:
    if seeds is not None and seeds < 1:
        raise FedvineError("Give one seed or more.")
    return SEEDS if seeds is None else seeds

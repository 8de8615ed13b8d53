"""Forecasts of links as an estimator: learn from rows of (source, destination, time)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from fedvine.core.errors import FedvineError, near
from fedvine.data.dates import moment
from fedvine.data.io.look import Look
from fedvine.data.io.one_table import names_of
from fedvine.data.io.read import from_frame
from fedvine.data.plan import ask_about_far
from fedvine.data.stream import EventStream
from fedvine.experiments.forecasts import Forecast, Forecasts
from fedvine.experiments.run import Run, run
from fedvine.living.news import News, as_before, check_columns, taken
from fedvine.living.rows import StoredRows
from fedvine.living.run import merged
from fedvine.sklearn.shared import Learned, OfMethod, source
from fedvine.tasks.task import of


class LinkForecaster(OfMethod):
    """Learn which destination a source meets next, stage by stage, at the clients of the rows.

    A frame is a pandas or polars frame, a pyarrow table, or a mapping of columns. Rows need not be
    sorted by time. Without ``client`` all rows are of one client.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"src": list("ab" * 30), "dst": list("xy" * 30), "time": range(60)})
    >>> list(LinkForecaster("recency").fit(rows).predict(rows[:2]))
    ['x', 'y']

    Args:
        method: a method for links, such as ``fedvine.FedLink(rounds=3)``, or its name.
        src: column of sources (users): whole numbers or text.
        dst: column of destinations (items).
        time: column of times: numbers, dates or timestamps.
        client: column of the clients between which the rows are split.
        weight: column of finite numbers that methods may learn from.
        features: columns of numbers and of categories that methods may learn from.
        bipartite: whether sources and destinations are of two kinds; False: one.
        stages: a duration of a stage such as ``"7d"``, or its number of rows; None: a tenth of the
            rows of ``fit``.
        metric: the measure of :meth:`score`, such as "auc", "ap", "mrr" or "hits_sampled".
        sure: accept times and clients that look wrong.
        random_state: all randomness comes from this number, from 0.

    Attributes:
        learned_: the run and its folder, which ends with the estimator.
        clients_: names of the clients [K].
        scores_: scores of the run while it learned (each stage is scored before it is learned).
    """

    def __init__(self, method: Any = "fedlink_plus", *, src: str = "src", dst: str = "dst",
                 time: str = "time", client: str | None = None, weight: str | None = None,
                 features: Any = (), bipartite: bool = True, stages: int | str | None = None,
                 metric: str = "auc", sure: bool = False, random_state: int | None = 0) -> None:
        self.method, self.src, self.dst, self.time = method, src, dst, time
        self.client, self.weight, self.features = client, weight, features
        self.bipartite, self.stages, self.metric = bipartite, stages, metric
        self.sure, self.random_state = sure, random_state

    # -- learning ----------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any = None) -> LinkForecaster:
        """Learn from the rows of a frame, anew; ``y`` is not used.

        Raises :class:`FedvineError` (a :class:`ValueError`) for a frame that cannot be read.
        """
        method, seed, learned = self._method(), self._seed(), Learned()
        task = of(method)()
        if task.data != "stream" or task.no_pairs:
            raise FedvineError(f"{method.name} answers for {method.task}s; choose a method for "
                               "links, such as fedlink or fedlink_plus.")
        stream = self._read(X, learned)
        split = stream.split(**({"by": "hash", "k": 1} if self.client is None else
                                {"by": self.client}))
        step = task.stage_size(stream, self.stages.item() if isinstance(self.stages, np.generic)
                               else self.stages)
        if not self.sure:
            ask_about_far("the frame", stream.order, step, stream.dates)
        plan = stream.by_time(step) if isinstance(step, str) else stream.by_count(step)
        made = run(method, split, plan, seed=seed, out=learned.folder, step=step,
                   save_every=np.inf).finish()
        learned.now(made)
        return self._answers_from(learned)

    def partial_fit(self, X: Any, y: Any = None) -> LinkForecaster:
        """Learn rows that are new, in further stages; the first call is :meth:`fit`.

        Rows older than what was learned came late, and are learned in the first new stage. All rows
        that are given are learned at once. Raises :class:`FedvineError` for a frame that cannot be
        read; then nothing changes.
        """
        if not hasattr(self, "learned_"):
            return self.fit(X)
        learned = self.learned_.copy()
        kept = StoredRows.open(learned.folder / "data")
        found = self._news(X, kept, learned)
        kept = merged(kept, found, lambda _: {"read": None, "files": None}, now=True,
                      sure=bool(self.sure))
        learned.now(self._continued(learned, kept).finish())
        return self._answers_from(learned)

    def _answers_from(self, learned: Learned) -> LinkForecaster:
        self.learned_, self.clients_ = learned, np.array(list(learned.run.parts), object)
        self.scores_ = learned.run.scores
        return self

    def _news(self, X: Any, kept: StoredRows, learned: Learned) -> News:
        stream = kept.split.stream
        table = as_before(stream, self._read(X, learned), partial(self._read, X, learned),
                          self.client)
        check_columns(stream, table)
        end = table._rank(kept.plan.bounds[-1])
        return News(table, np.arange(end), np.arange(end, len(table)))

    def _continued(self, learned: Learned, kept: StoredRows) -> Run:
        """Return the run of ``learned`` on the rows that are kept now; it is not carried out."""
        before = self.learned_.run
        return run(before.method, kept.split, kept.plan, seed=before.ready.world.seed,
                   protocol=before.protocol, out=learned.folder, step=kept.facts["step"],
                   source=source(learned), save_every=np.inf)

    def _read(self, X: Any, learned: Learned, look: Look | None = None) -> EventStream:
        if isinstance(X, np.ndarray) or issparse(X):
            raise FedvineError(f"X is {'a sparse array' if issparse(X) else 'an array'}, which is "
                               "not supported; give a frame with the columns "
                               f"{self.src}, {self.dst} and {self.time}.")
        number = sum(1 for _ in learned.folder.parent.iterdir())
        return from_frame(X, src=self.src, dst=self.dst, time=self.time, client=self.client,
                          weight=self.weight, features=[self.features] if isinstance(
                              self.features, str) else list(self.features),
                          bipartite=self.bipartite, sure=bool(self.sure), look=look,
                          store=learned.folder.parent / f"rows-{number}")

    # -- answers -----------------------------------------------------------------------------------
    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest destination of each row's source, object [n].

        ``X`` needs the column ``src``, and that of the clients where there are several. It is None
        for a source that no client has seen, and at a client that was not there; a warning counts
        these rows.
        """
        found = self._tops(X, 1)
        return np.array([self._as_given("dst", best[0].item) if best else None for best in found],
                        object)

    def _as_given(self, role: str, name: str) -> Any:
        """Return a name as the frame of ``fit`` had it: a number, or text."""
        stream = self.learned_.run.ready.stream
        whole = stream is not None and role in stream.whole and name.removeprefix("-").isdecimal()
        return int(name) if whole else name

    def top(self, X: Any, n: int = 5) -> pd.DataFrame:
        """Return the likeliest destinations of each row's source, best first.

        Args:
            X: a frame as in :meth:`predict`.
            n: destinations a row, at most; 1 or more.

        Returns:
            A frame with up to ``n`` rows for each row of ``X``: ``row`` (from 0), the source, the
                ``rank`` from 1, the destination, its ``score`` (higher is likelier) and whether the
                pair is ``known``: seen at this client. A source that no client has seen has no row.
        """
        if n < 1:
            raise FedvineError(f"{n} destinations a row are none; ask for 1 or more.")
        sources, found = self._columns(X, self.src)[0], self._tops(X, n)
        rows = [(i, self._as_given("src", source), rank, self._as_given("dst", one.item), *one[1:3])
                for i, (source, best) in enumerate(zip(sources, found, strict=True))
                for rank, one in enumerate(best, 1)]
        return pd.DataFrame(rows, columns=["row", self.src, "rank", self.dst, "score", "known"])

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each row's pair, float64 [n]; higher is likelier.

        ``X`` needs the columns ``src`` and ``dst``, and that of the clients where there are
        several. The score is NaN where no client has seen the source, or the client has not seen
        the destination.
        """
        check_is_fitted(self)
        users, items = self._columns(X, self.src, self.dst)
        clients, scores = self._of(X, len(users)), np.full(len(users), np.nan)
        here = np.flatnonzero([c in self.clients_ for c in clients])
        found = self._forecasts().scored(pa.table({
            name: pa.array([values[i] for i in here], pa.string())
            for name, values in (("client", clients), ("user", users), ("item", items))}))
        scores[here] = found["score"].to_numpy()
        _count(np.isnan(scores), [f'"{user}" and "{item}"' for user, item in zip(
            users, items, strict=True)], "have no score, as they are not known there")
        return scores

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean over clients of ``metric`` for rows that come after what was learned.

        The rows count as one further stage, which the model is asked about and does not learn. Rows
        before the last learned one are refused: the model knows what came after them; those at its
        very time are not asked about. So a splitter has to keep the order of time, on rows sorted
        by time, as :class:`sklearn.model_selection.TimeSeriesSplit` does.

        Args:
            X: rows as in :meth:`fit`.
            y: not used.

        Returns:
            The score, in [0, 1].

        Raises:
            FedvineError: for rows that are too early, and a metric that is none.
        """
        check_is_fitted(self)
        work = self.learned_.copy()
        kept = StoredRows.open(work.folder / "data")
        found, stream = self._news(X, kept, work), kept.split.stream
        newest, first = np.asarray(stream.t).max(), found.table.t[0]
        if first < newest or not (np.asarray(found.table.t) > newest).any():
            raise FedvineError(
                f"A row to score has the time {moment(float(first), stream.dates)}, and the last "
                f"learned one {moment(float(newest), stream.dates)}: a forecast is scored on later "
                "rows alone; sort the rows by time and split them with TimeSeriesSplit, not with a "
                "splitter that shuffles.")
        learned = kept.plan.bounds[-1]
        end = float(np.nextafter(max(float(found.table.t[-1]), learned), np.inf))
        plan = replace(kept.plan, bounds=(*kept.plan.bounds, end),
                       live=len(kept.plan) if kept.plan.live is None else kept.plan.live)
        kept = kept.take(taken(stream, found, learned, end), plan)
        stages = iter(self._continued(work, kept))
        by = next(stages).scores        # before the new stage is learned
        stages.close()                  # type: ignore[attr-defined]
        known = sorted({key for scores in by.values() for key in scores})
        values = [scores[self.metric] for scores in by.values() if self.metric in scores]
        if not known:
            raise FedvineError("None of these rows can be scored: those after the last learned "
                               "time are of clients that are not known; give rows of clients that "
                               "were learned, which clients_ names.")
        if not values:
            raise FedvineError(f'There is no measure "{self.metric}" of these rows'
                               f"{near(str(self.metric), known)}; there are {', '.join(known)}.")
        return float(np.mean(values))

    # -- names -------------------------------------------------------------------------------------
    def _forecasts(self) -> Forecasts:
        return self.learned_.once("forecasts", lambda: Forecasts(self.learned_.run))

    def _tops(self, X: Any, n: int) -> list[list[Forecast]]:
        """Return the forecasts of each row's source."""
        check_is_fitted(self)
        users, = self._columns(X, self.src)
        clients = np.array(self._of(X, len(users)), object)
        found: list[list[Forecast]] = [[] for _ in users]
        for client in dict.fromkeys(c for c in clients if c in self.clients_):
            rows = np.flatnonzero(clients == client)
            best = self._forecasts().tops(str(client), [users[i] for i in rows], n)
            for row, one in zip(rows, best, strict=True):
                found[row] = one
        _count(np.array([not best for best in found], bool), [f'"{user}"' for user in users],
               "have no forecast, as no client that was learned from has seen them")
        return found

    def _of(self, X: Any, count: int) -> list[str]:
        """Return the client of each row."""
        if self.client is None or self.learned_.run.method.server_holds_graph:
            return [str(self.clients_[0])] * count
        return self._columns(X, self.client)[0]

    def _columns(self, X: Any, *names: str) -> list[list[str]]:
        """Return columns of a frame as names, as :meth:`fit` reads them."""
        found = []
        for name in names:
            try:
                column = X[name]
            except (KeyError, IndexError, TypeError, ValueError, LookupError) as error:
                raise FedvineError(f'The frame has no column "{name}".') from error
            found.append(names_of(column, name, "rows"))
        return found

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learned_")


def _count(missing: np.ndarray, names: list[str], what: str) -> None:
    """Warn of the rows that were not found, bool [n], by their number and the first one's name."""
    if missing.any():
        warnings.warn(f"{int(missing.sum()):,} of {len(missing):,} rows {what}; the first is "
                      f"{names[int(missing.argmax())]}.", stacklevel=4)

"""One institution's side of a real federation: bytes in, bytes out, data stay here.

A site answers the server alone (:mod:`fedvine.federation.signed`). It opens its own table from its
own file, keeps one client in memory for a run, and saves the client's memory in its own folder,
under a digest of the experiment. It carries out a few fixed requests
(:mod:`fedvine.federation.requests`) and refuses all others; methods are those installed here, their
constants are validated and held against the site's policy, and no code ever arrives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.device import without
from fedvine.core.errors import FedvineError
from fedvine.core.expect import check
from fedvine.core.ledger import Fresh, Ledger
from fedvine.core.message import Packed, Pool, pack, unpack
from fedvine.core.query import Query
from fedvine.core.state import World
from fedvine.core.worker import ClientWorker, Envelope
from fedvine.data.plan import Plan
from fedvine.engines.plans import SCALES
from fedvine.engines.refusals import Refusal
from fedvine.federation import requests, site_saves
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.policy import Policy, coarse_scores
from fedvine.federation.site_checks import confirmed, plain, same_table, settings
from fedvine.federation.site_file import LEDGER
from fedvine.federation.site_graph import Agreed, SiteGraph
from fedvine.federation.site_rows import grown_at_a_site
from fedvine.federation.site_table import SiteTable

if TYPE_CHECKING:
    from fedvine.federation.signed import Trusted
    from fedvine.privacy.identities import RosterMember

# Of a graph at the server; and of the sites' tables of nodes.
FACTS = {"directed": bool, "classes": int, "features": int, "tables": dict,
         "class_names": list, "classes_at": list}
SUMS = "sums.json"          # sums of columns that were given, likewise


class Site(SiteTable):
    """One client of a federation; :meth:`handle` answers the server's requests.

    Args:
        name: of the site.
        open_part: opens the site's own stream, see :class:`SiteTable`.
        folder: of its saves.
        trusted: checks the server's signature.
        sure: times that are far from all others are meant.
        policy: what a run may do here; None: whatever an installed method does.
        identity: returns the site's key and roster (:mod:`fedvine.federation.roster`), or None.
        openly: the server may read the names of classes.
        counter: file of the ledger's counter, outside of the folder.
        fresh: makes keys of noise, for tests (:class:`fedvine.core.ledger.Ledger`).
    """

    def __init__(self, name: str, open_part: Callable[..., Any], folder: Path, trusted: Trusted,
                 sure: bool = False, policy: Policy | None = None,
                 identity: Callable[[], RosterMember | None] = lambda: None,
                 openly: bool = False, *, counter: Path | None = None, fresh: Fresh | None = None
                 ) -> None:
        super().__init__(open_part, sure, 1 if policy is None else policy.grain, folder / SUMS)
        self.openly = openly
        self.name, self.folder, self.trusted = name, folder, trusted
        self.worker: ClientWorker | None = None
        self.run: str | None = None                              # the run that was opened
        self.saves, self.pool = folder / "saves", Pool()
        self.last: requests.Last | None = None                   # the answer to the last call
        self.agreed: tuple[str, bool] | None = None              # the run, and if with first times
        self.policy, self.account = policy, Account(folder / FOLDER)
        self.identity = identity
        self.ledger = partial(Ledger, folder / LEDGER, name, counter=counter, fresh=fresh,
                              **({} if policy is None else
                                 {"limit": policy.epsilon, "delta": policy.delta}))

    def handle(self, block: bytes, seal: bytes) -> bytes:
        """Carry out one request if the server has signed it; see its file, requests.py."""
        return requests.handle(self, block, seal)

    def answer(self, run: str, block: bytes) -> bytes:
        """Carry out one request of the server; errors are returned as a code."""
        return requests.answer(self, run, block)

    # -- before a run: what it would do here -------------------------------------------------------
    def agree(self, run: str, method: dict[str, Any], protocol: dict[str, Any], travelled: bool
              ) -> None:
        """Agree to a run of ``method``; raises :class:`Refusal` where the policy does not allow it.

        ``travelled``: the server will ask when each hashed user was first seen here.
        """
        self.agreed = None
        constants, _ = settings(method, protocol)
        confirmed(constants, self.identity)
        if self.policy is not None:
            self.policy.check(constants, travelled)
        self.agreed = run, travelled is True

    def arrivals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return users' keys and first times, if the run was agreed to with them."""
        if self.agreed is None or not self.agreed[1]:
            raise Refusal("terms")
        return super().arrivals()

    # -- a labelled graph, and rows of a run that grows --------------------------------------------
    def nodes(self, run: str, number: str, named: Any, plan: dict[str, Any] | None,
              classes: list[str] | None, live: bool, fits: list[Any] | None) -> dict[str, Any]:
        """Say what the server learns of a labelled graph; keep new rows if the run lives.

        See :meth:`fedvine.federation.site_graph.SiteGraph.described`.
        """
        if live:
            self.table = None       # is read again
        return self.graph(run, number).described(named, plan, classes, live, fits)

    def graph(self, run: str, number: str) -> SiteGraph:
        """Return this site's labelled graph; raise :class:`Refusal` for a table of edges."""
        digest = hashlib.sha256(str(number).encode()).hexdigest()[:12]
        return SiteGraph(self.read(), self.folder / f"{plain(run)}-{digest}-graph", self.openly,
                         self.grain, self.sure, self.open_part)

    def grow(self, run: str, number: str, method: dict[str, Any], plan: dict[str, Any],
             protocol: dict[str, Any], seed: int, since: int) -> None:
        """Take in the rows of the stages that a growing plan has got since the last time.

        ``since`` is this site's first stage in the run: earlier rows are learned there. The rows
        are kept in the run's folder here; :meth:`open` comes next. Raises :class:`FedvineError`
        where the table has lost or changed rows that the run has learned.
        """
        stages = Plan.of_facts(plan)
        if self.policy is not None:
            self.policy.check(settings(method, protocol)[0], stages=len(stages))
        table = self.edges()
        folder = self._place(run, number, method, stages, protocol, seed) / "data"
        try:
            self.part = grown_at_a_site(folder, table, stages, since, self.open_part).both_ways()
        except FedvineError as error:       # it names a row
            raise Refusal("rows", text=str(error)) from error

    def _place(self, run: str, number: str, method: dict[str, Any], plan: Any,
               protocol: dict[str, Any], seed: int, *more: Any) -> Path:
        """Return the folder of a run here: its name, and a digest of what does not change in it."""
        facts = json.dumps([number, without(method), plan.began.facts(), protocol, *more[:1], seed,
                            *more[1:]], sort_keys=True)
        return self.folder / f"{plain(run)}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    # -- the run: parameters are called as the keys of the requests --------------------------------
    def open(self, run: str, number: str, method: dict[str, Any], plan: dict[str, Any],
             protocol: dict[str, Any], clients: list[str], seed: int, stages: int,
             elsewhere: np.ndarray | None, facts: dict[str, Any] | None = None,
             since: dict[str, int] | None = None, until: dict[str, int] | None = None,
             classes: dict[str, Any] | None = None) -> None:
        """Set up the client of a run; all values are validated first.

        The client's memory is kept under the run's name and a digest of the whole experiment;
        ``number`` separates two runs of one experiment, ``facts`` are about the graph that the
        server holds, or those of the sites, ``since`` and ``until`` as in
        :class:`fedvine.core.state.World`, ``classes`` those of labelled graphs
        (:class:`fedvine.federation.site_graph.Agreed`). Raises :class:`FedvineError` if the site's
        table is another one than when this run began, or does not fit the run.
        """
        said = facts or {}
        if any(type(value) is not FACTS.get(key) for key, value in said.items()):
            raise Refusal("facts")
        check(said.get("tables", {}), SCALES)
        constants, scored = settings(method, protocol)
        bounds = scored.plan_of(plan)
        if self.policy is not None:
            self.policy.check(constants, stages=len(bounds))
        held = () if bounds.living else (clients, stages, *([said] if said else []))
        saves = self._place(run, number, method, bounds, protocol, seed, *held)
        identity = confirmed(constants, self.identity, clients)
        world = World(tuple(clients), seed, stages, said, since or {}, until or {}, bounds.living)
        part: Any = None
        if not constants.server_holds_graph:
            part = self.stream if scored.data != "graph" else self.graph(run, number).part(
                self.name, Agreed.of(classes), said, bounds.living)
        if part is not None and elsewhere is not None:
            users = np.unique(part.src)     # with one kind of nodes some nodes are not a source
            if len(elsewhere) != len(users):
                raise Refusal("arrivals")
            part.first_seen_elsewhere = np.full(part.num_src, np.inf)
            part.first_seen_elsewhere[users] = elsewhere
        if part is not None and not bounds.living:
            same_table(part, saves / "table.json")
        self.worker = ClientWorker(constants, self.name, part, bounds, scored, world,
                                   secret=site_saves.secret(self.folder), identity=identity,
                                   ledger=self.ledger(run=saves.name))
        self.run, self.saves, self.last = run, saves, None

    def call(self, place: list[int], function: str, asks: int | None, skeleton: bytes,
             buffers: list[np.ndarray]) -> list[Any]:
        """Carry out one call; return the reply's skeleton and buffers, and the seconds it took."""
        worker, query = self._running(), Query.of_code(asks)
        if query is not None and query.kind == "given":     # raw answers to the server's own pairs
            raise Refusal("query")
        t, r, call = place
        reply = worker.handle(Envelope((t, r, call), function, query, Packed(skeleton, buffers)))
        if query is not None and query.kind == "stage" and function == "predict" and (
                self.grain > 1):
            reply = pack(coarse_scores(unpack(reply), self.grain))
        return [reply.skeleton, list(reply.buffers), worker.seconds]

    def save(self, moment: str) -> None:
        """Keep the client's memory, here, under the save's name."""
        site_saves.save(self._running(), self.saves, moment)

    def restore(self, moment: str | None) -> None:
        """Restore the client of that save, or of the newest one before it (this site was away).

        ``moment`` None: a fresh client, as at the start of a run.
        """
        self.last = None
        site_saves.restore(self._running(), self.saves, moment)

    def checkpoints(self) -> list[str]:
        """Return the saves that this site can restore."""
        return site_saves.moments(self.saves)

    def forecasts(self, count: int) -> int:
        """Return the number of blocks of this site's users; with ``count`` 0 write forecasts.

        The first call, with ``count`` items a user, comes before the answers to these blocks; the
        second, after them, writes the file here for ``fedvine predict KIT``. Of a labelled graph
        the labels of all nodes are one block.
        """
        return site_saves.forecasts(self._running(), self.name,
                                    self.saves.parent / f"{self.saves.name}.parquet", count)

    def _running(self) -> ClientWorker:
        if self.worker is None:
            raise Refusal("closed")
        return self.worker

"""One institution's side of a real federation: bytes in, bytes out, data stay here.

A site answers the server alone (:mod:`fedvine.federation.signed`). It opens its own table from its
own file, keeps one client in memory for a run, and saves the client's memory in its own folder,
under a digest of the experiment. It carries out a few fixed requests and refuses
all others; methods are those installed here, their constants are validated and held against the
site's policy, and no code ever arrives.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.aggregate.answered import Answered
from fedvine.core import registry
from fedvine.core.device import Device, placed
from fedvine.core.errors import FedvineError, MethodError
from fedvine.core.expect import Array, Maybe, check
from fedvine.core.files import atomic
from fedvine.core.ledger import Fresh, Ledger, Spent
from fedvine.core.message import Packed, Pool, dumps, loads, pack, unpack
from fedvine.core.method import Method
from fedvine.core.replies import Query
from fedvine.core.settings import build
from fedvine.core.state import World
from fedvine.core.units import size
from fedvine.core.worker import ClientWorker, Envelope
from fedvine.data.graph import Graph
from fedvine.data.identity import digest, names
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.engines.remote import Refusal
from fedvine.experiments.run_files import read_object
from fedvine.federation import site_saves
from fedvine.federation.account import FOLDER, NOTHING, Account
from fedvine.federation.erasures import ROWS, Erasures
from fedvine.federation.match import FILE as COUNTED
from fedvine.federation.match import Matching
from fedvine.federation.policy import Naming, Policy, coarse, coarse_scores
from fedvine.federation.pseudonyms import FILE, Pseudonyms, TwoHalves
from fedvine.federation.site_file import LEDGER
from fedvine.federation.site_table import Agreed, SiteGraph, SiteTable
from fedvine.living.gate import Closed, Gate
from fedvine.living.sites import SCALES, grown_at_a_site
from fedvine.tasks.chances import BINS
from fedvine.tasks.task import of

if TYPE_CHECKING:
    from fedvine.aggregate.identities import RosterMember
    from fedvine.federation.signed import Trusted

# Of a graph at the server; and of the sites' tables of nodes.
FACTS = {"directed": bool, "classes": int, "features": int, "tables": dict,
         "class_names": list, "classes_at": list}
HOURLY = "hourly.json"
SUMS = "sums.json"          # sums of columns that were given, likewise
_LOG = logging.getLogger(__name__)
# Requests before a run is open here, and what leaves with the answer; then those of the run.
BEFORE = {"agree": NOTHING, "erased": "receipts of erasures", "facts": "counts and times",
          "known": "counts", "tables": "sums of columns", "arrivals": "keys and times of users",
          "match": "blinded users or a count", "blind": "blinded names", "evaluated": NOTHING,
          "nodes": "classes and counts", "grow": NOTHING, "open": NOTHING}
DURING = {"call": "", "save": NOTHING, "restore": NOTHING, "moments": "names of saves",
          "forecasts": "a count"}
STEPS = ("sum_keys", "sum_shares", "sum_doubts", "sum_agree", "sum_unmask")    # of a sum
NAME = 100      # characters of a run's name in the account


class Last:
    """The last call's answer: ``place``, ``kind`` that left, and bytes ``left`` in this round."""

    def __init__(self, place: tuple[int, ...], answer: bytes, kind: str, left: int) -> None:
        self.place, self.answer, self.kind, self.left = place, answer, kind, left


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
        device: where tensors are computed (:func:`fedvine.core.device.placed`).
        gate: refuses new stages with unusual rows; the server hears no more than that.
    """

    def __init__(self, name: str, open_part: Callable[..., Any], folder: Path, trusted: Trusted,
                 sure: bool = False, policy: Policy | None = None,
                 identity: Callable[[], RosterMember | None] = lambda: None,
                 openly: bool = False, *, counter: Path | None = None, fresh: Fresh | None = None,
                 device: Device = "auto", gate: Gate | None = None) -> None:
        super().__init__(open_part, sure, 1 if policy is None else policy.grain, folder / SUMS)
        self.openly, self.pseudonyms = openly, Pseudonyms(folder / FILE)
        self.naming: Naming = "key"
        self.said: tuple[Any, Any] | None = None    # method and protocol, as agreed to
        self.counts = False         # whether users in common may be counted, and with whom now
        self.pair: tuple[str, Matching] | None = None
        self.device: Device = device
        self.gate = gate
        self.name, self.folder, self.trusted = name, folder, trusted
        self.worker: ClientWorker | None = None
        self.run: str | None = None                              # the run that was opened
        self.saves, self.pool = folder / "saves", Pool()
        self.last: Last | None = None                   # the answer to the last call
        self.agreed: tuple[str, bool] | None = None              # the run, and if with first times
        self.policy, self.account = policy, Account(folder / FOLDER)
        self.erasures = Erasures(folder, name)
        # The hour, and bytes that left in it outside of rounds; jobs follow each other.
        self.hourly = tuple(read_object(folder / HOURLY).get("hourly", (0, 0)))
        self.identity = identity
        self.ledger = partial(Ledger, folder / LEDGER, name, counter=counter, fresh=fresh,
                              **({} if policy is None else
                                 {"limit": policy.epsilon, "delta": policy.delta}))

    # -- requests of the server: checked, carried out, and written into the account ---------------
    def handle(self, block: bytes, seal: bytes) -> bytes:
        """Carry out one request if the server has signed it; any other one is refused unread."""
        try:
            run = self.trusted.check(block, seal)
        except FedvineError as error:
            return self._refused("", "?", block, Refusal("seal", text=str(error)))
        return self.answer(run, block)

    def answer(self, run: str, block: bytes) -> bytes:
        """Carry out one request of the server; the answer is a reply, or an error's code."""
        name = "?"
        try:
            request = unpack(loads(block, self.pool))
            if not isinstance(request, dict):
                raise Refusal("unread")
            do = request.pop("do", "")
            if do not in BEFORE and do not in DURING:
                raise Refusal("unknown")
            name = do
            if do in DURING and run != self.run:
                raise Refusal("closed") if self.run is None else Refusal("another")
            if do in ("agree", "erased", "nodes", "grow", "open") and request.get("run") != run:
                raise Refusal("another")
            if do in BEFORE and do != "agree" and (
                    self.agreed is None or self.agreed[0] != run):
                raise Refusal("terms")
            if do in ("grow", "open") and self.said != (request.get("method"),
                                                        request.get("protocol")):
                raise Refusal("terms")
            if do != "call":
                reply, kind = getattr(self, do)(**request), {**BEFORE, **DURING}[do]
                kind = "numbers of erasures" if do == "agree" and reply else kind
                out = dumps(pack({"reply": reply}))
                self._within_the_hour(len(out))
            else:
                if self.worker and self.worker.method.client_function(str(request["function"])):
                    name = str(request["function"])
                kind, out = self._call(request)
        except Exception as error:
            return self._refused(run, name, block, error)
        sums = {} if self.worker is None else self.worker.client.sums
        told = {key: sums.pop(key) for key in ("stays", "alone") if sums.get(key)}
        self.account.add(**{"run": run[:NAME], "function": name, "kind": kind, "in": len(block),
                            "out": len(out)}, **told)
        return out

    def _within_the_hour(self, more: int) -> None:
        """Count bytes of answers outside of rounds; raise :class:`Refusal` above the policy's."""
        hour = int(time.time() // 3600)
        self.hourly = hour, more + (self.hourly[1] if self.hourly[0] == hour else 0)
        most = None if self.policy is None else self.policy.hourly_bytes
        if most is not None:
            with atomic(self.folder / HOURLY, "w") as file:
                json.dump({"hourly": self.hourly}, file)
            if self.hourly[1] > most:
                raise Refusal("policy-hour", size(most))

    def _forget_call(self) -> None:
        """Forget the last call; what left in its round, which may come again, is of the hour."""
        if self.last is not None:
            self._within_the_hour(self.last.left)
        self.last = None

    def _call(self, request: dict[str, Any]) -> tuple[str, bytes]:
        """Return what leaves, and the answer to a call.

        A repeated or an overtaken call gets the last answer. Raises :class:`Refusal` where more
        would leave in a round than the site's policy allows.
        """
        place = tuple(request["place"])
        if len(place) not in (3, 4) or not all(type(x) is int and x >= 0 for x in place):
            raise Refusal("method")
        if self.last is None or place > self.last.place:
            reply = self.call(**request)
            out = dumps(pack({"reply": reply}))
            before = self.last.left if self.last is not None and (
                self.last.place[:2] == place[:2]) else 0
            most = None if self.policy is None else self.policy.most_bytes
            if most is not None and before + len(out) > most:
                raise Refusal("policy-bytes", size(most), size(before + len(out)))
            asks = request["asks"]
            kind = (NOTHING if reply[0] == pack(None).skeleton else
                    "for training" if asks is None else
                    "for answers" if request["function"] != "predict" else
                    "scores" if asks >= 0 else "a count")
            self.last = Last(place, out, kind, before + len(out))
        return self.last.kind, self.last.answer

    def _refused(self, run: str, name: str, block: bytes, error: Exception) -> bytes:
        """Return an error's code; its sentence may hold values of the table, and stays here."""
        known = isinstance(error, FedvineError)
        sent = (error.sent if isinstance(error, Refusal) else
                ["spent" if isinstance(error, Spent) else
                 "method" if isinstance(error, MethodError) else
                 "sum" if name in STEPS else "failed"])
        why = str(error) if known else f"{type(error).__name__}: {error}"
        if not known:       # with where it came from
            _LOG.error("a request failed: %s", why, exc_info=error)
        out = dumps(pack({"error": sent}))
        self.account.add(**{"run": run[:NAME], "function": name, "kind": "refused",
                            "in": len(block), "out": len(out), "code": sent[0], "why": why})
        return out

    # -- before a run: what it would do here -------------------------------------------------------
    def agree(self, run: str, method: dict[str, Any], protocol: dict[str, Any], travelled: bool,
              names: Naming = "key", match: bool = False) -> list[str] | None:
        """Agree to a run of ``method``; raises :class:`Refusal` where the policy does not allow it.

        Returns the numbers of this site's erasures that concern the run, None without any.
        ``travelled``: the server will ask when each hashed user was first seen here; ``names``: how
        they will travel; ``match``: users in common with other sites will be counted.
        """
        self.agreed, self.counts = None, False
        constants, scored = settings(method, protocol)
        confirmed(constants, self.identity)
        if self.policy is not None:
            self.policy.check(constants, travelled, protocol=scored, names=names)
            if match and not self.policy.match:
                raise Refusal("policy-field", "match", "false", "true")
        self.agreed, self.naming, self.counts = (run, travelled is True), names, match is True
        self.said = method, protocol
        return self.erasures.due(plain(run)) or None

    def erased(self, run: str, numbers: list[str], receipts: list[str]) -> list[str]:
        """Drop what this site learned in a run where others have erased somebody.

        See :meth:`fedvine.federation.erasures.Erasures.carry_out`.
        """
        if numbers:
            self.worker = self.run = None
        return self.erasures.carry_out(plain(run), numbers, receipts)

    def arrivals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return users' keys and first times, if the run was agreed to with them."""
        if self.agreed is None or not self.agreed[1]:
            raise Refusal("terms")
        return super().arrivals()

    # -- names that the hub evaluates -----------------------------------------------------------
    def read(self) -> Any:
        """Return the site's own table, whose names have keys as the run that was agreed to says."""
        return self._keyed(super().read())

    def _keyed(self, table: Any) -> Any:
        for ids in (table.src_ids, table.dst_ids) if isinstance(table, EventStream) else ():
            secret = bytes(ids.secret)
            ids.secret = secret if self.naming == "key" else TwoHalves.of(secret, self.pseudonyms)
        return table

    def missing(self) -> list[bytes]:
        """Return the names of the client's own data that the hub has not evaluated."""
        part = self._keyed(self.stream)
        return self.pseudonyms.missing([part.src_ids, part.dst_ids])

    def blind(self) -> np.ndarray:
        """Return names that are new here, blinded: uint8 [n, 32], a multiple of the grain."""
        return self.pseudonyms.blind(self.missing(), self.grain)

    def evaluated(self, evaluated: bytes, public: bytes) -> None:
        """Take what the hub evaluated of the names that :meth:`blind` returned."""
        if evaluated:
            self.pseudonyms.take(evaluated, public)

    def match(self, step: str, peer: str, given: list[Any] | None = None) -> Any:
        """Carry out a step of counting users in common with the site ``peer``."""
        if not self.counts or step not in ("request", "offer", "answer", "count"):
            raise Refusal("terms")
        if step in ("request", "offer"):
            part = self.edges()
            ends = np.unique(part.src if part.bipartite else np.concatenate([part.src, part.dst]))
            self.pair = peer, Matching([part.src_ids[i].encode() for i in ends.tolist()],
                                       bytes(part.src_ids.secret), self.grain,
                                       self.folder / COUNTED)
        if self.pair is None or self.pair[0] != peer:
            raise Refusal("terms")
        found = getattr(self.pair[1], step)(*([peer] if step in ("request", "offer") else []),
                                            *given or ())
        return list(found) if step == "request" else found

    # -- a labelled graph, and rows of a run that grows --------------------------------------------
    def nodes(self, run: str, number: str, named: Any, plan: dict[str, Any] | None,
              classes: list[str] | None, live: bool, fits: list[Any] | None) -> dict[str, Any]:
        """Say what the server learns of a labelled graph; keep new rows if the run lives.

        See :meth:`fedvine.federation.site_table.SiteGraph.described`.
        """
        if live:
            self.table = None       # is read again
            self._room(self._graph(run, number))
        return self.graph(run, number).described(named, plan, classes, live, fits)

    def graph(self, run: str, number: str) -> SiteGraph:
        """Return this site's labelled graph; raise :class:`Refusal` for a table of edges."""
        return SiteGraph(self.read(), self._graph(run, number), self.openly, self.grain, self.sure,
                         self.open_part)

    def _graph(self, run: str, number: str) -> Path:
        digest = hashlib.sha256(str(number).encode()).hexdigest()[:12]
        return self.folder / f"{plain(run)}-{digest}-graph"

    def grow(self, run: str, number: str, method: dict[str, Any], plan: dict[str, Any],
             protocol: dict[str, Any], seed: int, since: int) -> None:
        """Take in the rows of the stages that a growing plan has got since the last time.

        ``since`` is this site's first stage in the run: earlier rows are learned there. The rows
        are kept in the run's folder here; :meth:`open` comes next. Raises :class:`FedvineError`
        where the table has lost or changed rows that the run has learned, and where the gate is
        closed.
        """
        stages = Plan.of_facts(plan)
        if self.policy is not None:
            self.policy.check(settings(method, protocol)[0], stages=len(stages),
                              bounds=self.dated(stages))
        table = self.edges()
        folder = self._place(run, number, method, stages, protocol, seed) / "data"
        try:
            self.part = grown_at_a_site(folder, table, stages, since, self.open_part,
                                        self.gate).both_ways()
        except Closed as error:
            raise Refusal("gate", text="; ".join(error.reasons)) from error
        except FedvineError as error:       # it names a row
            raise Refusal("rows", text=str(error)) from error

    def dated(self, plan: Any) -> tuple[float, ...]:
        """Return the bounds of a plan of edges in seconds; () where times are no dates."""
        if not isinstance(plan, Plan) or not self.read().dates:
            return ()
        *bounds, last = plan.bounds     # the last stage may be short where this table ends in it
        ends = not len(order := self.edges().order) or order[-1] < last
        return (*bounds, math.inf if ends else last)

    def _place(self, run: str, number: str, method: dict[str, Any], plan: Any,
               protocol: dict[str, Any], seed: int, *more: Any) -> Path:
        """Return the folder of a run here: its name, and a digest of what does not change in it."""
        facts = json.dumps([number, method, plan.began.facts(), protocol, *more[:1], seed,
                            *more[1:]], sort_keys=True)
        return self._room(
            self.folder / f"{plain(run)}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}")

    def _room(self, folder: Path) -> Path:
        """Return the folder of a run; raise :class:`Refusal` for one more than are allowed."""
        graphs = [p.name.endswith("-graph") for p in self.folder.glob("*-*") if p.is_dir()]
        if self.policy is not None and not folder.exists() and (
                graphs.count(folder.name.endswith("-graph")) >= self.policy.runs):
            raise Refusal("policy-runs", str(self.policy.runs))
        return folder

    # -- the run: parameters are called as the keys of the requests --------------------------------
    def open(self, run: str, number: str, method: dict[str, Any], plan: dict[str, Any],
             protocol: dict[str, Any], clients: list[str], seed: int, stages: int,
             elsewhere: np.ndarray | None, facts: dict[str, Any] | None = None,
             since: dict[str, int] | None = None, until: dict[str, int] | None = None,
             classes: dict[str, Any] | None = None, erased: list[str] | None = None) -> None:
        """Set up the client of a run; all values are validated first.

        The client's memory is kept under the run's name and a digest of the whole experiment;
        ``number`` separates two runs of one experiment, ``facts`` are about the graph that the
        server holds, or those of the sites, ``since`` and ``until`` as in
        :class:`fedvine.core.state.World`, ``classes`` those of labelled graphs
        (:class:`fedvine.federation.site_table.Agreed`), ``erased`` the erasures after which the
        server has dropped what it learned. Raises :class:`FedvineError` if the site's table is
        another one than when this run began, does not fit the run, or has erased more.
        """
        if not set(self.erasures.due(plain(run))) <= set(erased or ()):
            raise Refusal("erasure")
        said = facts or {}
        if any(type(value) is not FACTS.get(key) for key, value in said.items()):
            raise Refusal("facts")
        check(said.get("tables", {}), SCALES)
        constants, scored = settings(method, protocol)
        bounds = scored.plan_of(plan)
        if self.policy is not None:
            self.policy.check(constants, stages=len(bounds), protocol=scored,
                              bounds=self.dated(bounds))
        held = () if bounds.living else (clients, stages, *([said] if said else []))
        saves = self._place(run, number, method, bounds, protocol, seed, *held)
        identity = confirmed(constants, self.identity, clients)
        world = World(tuple(clients), seed, stages, said, since or {}, until or {}, bounds.living)
        part: Any = None
        if not constants.server_holds_graph:
            if scored.data != "graph" and self.naming == "oprf" and self.missing():
                raise Refusal("names", text="Not all names have been evaluated by the hub.")
            part = (self._keyed(self.stream) if scored.data != "graph" else
                    self.graph(run, number).part(self.name, Agreed.of(classes), said,
                                                 bounds.living))
        if part is not None and elsewhere is not None:
            users = np.unique(part.src)     # with one kind of nodes some nodes are not a source
            if len(elsewhere) != len(users):
                raise Refusal("arrivals")
            part.first_seen_elsewhere = np.full(part.num_src, np.inf)
            part.first_seen_elsewhere[users] = elsewhere
        if part is not None and not bounds.living:
            same_table(part, saves / "table.json")
        try:
            constants = placed(constants, self.device)
        except FedvineError as error:
            raise Refusal("device", text=str(error)) from error
        self._forget_call()
        self.worker = ClientWorker(constants, self.name, part, bounds, scored, world,
                                   secret=site_saves.secret(self.folder), identity=identity,
                                   ledger=self.ledger(run=saves.name),
                                   answered=Answered(self.folder / ROWS))
        self.run, self.saves = run, saves

    def call(self, place: list[int], function: str, asks: int | None, skeleton: bytes,
             buffers: list[np.ndarray], once: list[int] | None = None) -> list[Any]:
        """Carry out one call; return the reply's skeleton and buffers, and the seconds it took."""
        worker, query = self._running(), Query.of_code(asks)
        if query is not None and query.kind == "given":     # raw answers to the server's own pairs
            raise Refusal("query")
        t, r, call, step = (*place, 0)[:4]
        if not (0 <= t < len(worker.plan) and 0 <= r <= worker.method.rounds_at(t) + 2):
            raise Refusal("method")     # + 2: answers, and the end of a stage
        # An arrival that fails here, as on a full disk, is sent again, and must not be half done.
        before = worker.before() if (r, query, step) == (0, None, 0) else None
        try:
            reply = worker.handle(Envelope((t, r, call, step), function, query,
                                           Packed(skeleton, buffers), once))
        except Exception:
            if before is not None:
                worker.undo(before)
            raise
        if query is not None and query.kind == "stage" and function == "predict":
            found = unpack(reply)
            if "parts" in found:
                site_saves.count_lists(self.saves, t, found["parts"])
            if self.grain > 1:
                reply = pack(coarse_scores(found, self.grain))
        if query is not None and query.kind == "own" and function == "predict":
            reply = pack(coarse(unpack(reply), self.grain))     # a number of users or nodes
        return [reply.skeleton, list(reply.buffers), worker.seconds]

    def save(self, moment: str) -> None:
        """Keep the client's memory, here, under the save's name."""
        site_saves.save(self._running(), self.saves, moment)

    def restore(self, moment: str | None) -> None:
        """Restore the client of that save or the newest before it; None: a fresh client."""
        self._forget_call()
        site_saves.restore(self._running(), self.saves, moment)

    def moments(self) -> list[str]:
        """Return the saves that this site can restore."""
        return site_saves.moments(self.saves)

    def forecasts(self, count: int, common: np.ndarray | None = None) -> int:
        """Return the number of blocks of this site's users; with ``count`` 0 write forecasts.

        The first call, with ``count`` items a user, comes before the answers to these blocks; the
        second, after them, writes the file here for ``fedvine predict KIT``. Of a labelled graph
        the labels of all nodes are one block. ``common``: how often what has a score was met, at
        all sites (:mod:`fedvine.tasks.chances`); this site's own counts weigh more.
        """
        check(common, Maybe(Array("float64", (BINS,), low=0, high=1)))
        curve = None if count else site_saves.count_lists(self.saves, 0).curve("", common)
        return site_saves.forecasts(self._running(), self.name,
                                    self.saves.parent / f"{self.saves.name}.parquet", count, curve,
                                    self.grain)

    def _running(self) -> ClientWorker:
        if self.worker is None:
            raise Refusal("closed")
        return self.worker


# -- checks of a run before a site takes part ------------------------------------------------------
def same_table(part: EventStream | Graph, file: Path) -> None:
    """Keep a digest of a run's table in ``file``; raise :class:`FedvineError` for another table."""
    ids = part.names() if isinstance(part, Graph) else part.src_ids
    now = {"edges": digest(part), "names": names(part),
           "keys": hmac.digest(ids.secret, b"table", "sha256").hex()}
    if not file.exists():
        with atomic(file, "w") as handle:
            json.dump(now, handle)
    elif json.loads(file.read_text("utf-8")) != now:
        raise Refusal("changed")


def plain(run: str) -> str:
    """Return a run's name as a part of a file's name."""
    return "".join(c if c.isalnum() else "-" for c in run)


def settings(method: dict[str, Any], protocol: dict[str, Any]) -> tuple[Method, Any]:
    """Return a method and its task with the server's constants, validated.

    Raises :class:`Refusal` where they are not valid, or the task cannot be carried here.
    """
    chosen = dict(method)
    try:
        kind = registry.method(str(chosen.pop("name", "")))
        assert issubclass(kind, Method)
        constants = build(kind, chosen, under="method.")
        scored = build(of(constants), protocol, under="protocol.")
    except FedvineError as error:
        raise Refusal("settings", text=str(error)) from error
    if not scored.federated:
        raise Refusal("task")
    return constants, scored


def confirmed(method: Method, identity: Callable[[], RosterMember | None],
              clients: list[str] | None = None) -> RosterMember | None:
    """Return the site's key and roster for a run with secure sums; None for other runs.

    Raises :class:`Refusal` without a roster, or where the run's ``clients`` are not all on it or
    are fewer than must stay by it.
    """
    if not method.hides:
        return None
    try:
        found = identity()
    except FedvineError as error:
        raise Refusal("roster", text=str(error)) from error
    if found is None:
        raise Refusal("roster")
    strangers = sorted(set(clients or ()) - found.roster.keys())
    if strangers:
        raise Refusal("roster-names", ", ".join(strangers))
    if clients is not None and (len(set(clients)) < len(clients) or found.name not in clients):
        raise Refusal("settings", text="A client is named twice, or this one is not.")
    needed, there = method.needed(len(found.roster)), len(found.roster)
    if clients is not None and len(clients) < needed:
        raise Refusal("roster-size", str(there), str(needed), str(len(clients)))
    return found

"""Clients in other processes, behind any transport that carries bytes to a name and bytes back.

The transport is one function, ``send(name, block, seconds) -> block``; it raises
:class:`Unreachable` when no answer came in time. Calls to several clients go out at once, and
replies are yielded in the order of names.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from fedvine.core.clients import Clients
from fedvine.core.errors import Failed, FedvineError
from fedvine.core.expect import MOST_BYTES, Array, Number, Several, Text, check
from fedvine.core.lookup import find
from fedvine.core.message import Packed, Pool, Refused, dumps, loads, pack, unpack
from fedvine.core.method import Method
from fedvine.core.protocol import PlanLike, ServerScorer, TaskLike
from fedvine.core.replies import RoundAborted, code
from fedvine.core.state import World
from fedvine.core.worker import Envelope

LATEST = 1e18   # no time is further from 0, in any unit


class Unreachable(Exception):
    """A client did not answer by the deadline."""


class Gone(Unreachable):
    """A client's process has ended; nothing will come from it in this job."""


Send = Callable[[str, bytes, float], bytes]


class RemoteClients(Clients):
    """Clients reached by ``send``.

    Args:
        method: has the functions that are called.
        names: of the clients.
        world: facts that all sides know.
        protocol: of scoring.
        send: the transport.
        server_scorer: scores at the server, where it holds the graph.
        quorum: share of replies, in (0, 1], that a call needs by default.
        deadline: seconds that a call may take.
    """

    def __init__(self, method: Method, names: Iterable[str], world: World, protocol: TaskLike,
                 send: Send, *, server_scorer: ServerScorer | None = None, quorum: float = 1.0,
                 deadline: float = 600.0) -> None:
        super().__init__(method, names, world, protocol, server_scorer, quorum=quorum)
        self.send, self.deadline = send, deadline
        self.gone: set[str] = set()  # clients whose process died
        self.refusals: dict[str, str] = {}      # by client: why its last answer was refused
        self.declined: dict[str, str] = {}      # sites that take no part in this run, and why
        self._threads = ThreadPoolExecutor(max(1, len(self.everyone)))

    def exchange(self, outgoing: Iterable[tuple[str, list[Envelope]]]) -> Iterator[
            tuple[str, Packed | Refused | None, float]]:
        """Deliver to all clients at once; see :meth:`Clients.exchange`."""
        waiting = [(name, self._threads.submit(self._deliver, name, envelopes))
                   for name, envelopes in outgoing]
        for name, future in waiting:
            yield name, *future.result()

    def _deliver(self, name: str, envelopes: list[Envelope]) -> tuple[
            Packed | Refused | None, float]:
        reply: Packed | None = None
        began, seconds = time.monotonic(), 0.0
        for envelope in envelopes:
            body = envelope.body
            try:
                reply, seconds = _reply(ask(
                    self.send, name, self.deadline, self.pool, do="call",
                    place=list(envelope.place), function=envelope.function,
                    asks=code(envelope.query), once=envelope.once, skeleton=body.skeleton,
                    buffers=list(body.buffers)))
            except Unreachable as error:
                self.gone |= {name} if isinstance(error, Gone) else set()
                return None, time.monotonic() - began
            except Refused as reason:
                self.refusals[name] = (f"{name}'s answer to {envelope.function} was refused, as "
                                       f"{reason}")
                return reason, 0.0
        self.refusals.pop(name, None)
        return reply, min(seconds, time.monotonic() - began)

    def all(self, expect: Any, each: Mapping[str, Any] | None = None, **request: Any
            ) -> dict[str, Any]:
        """Send one request to every client, and ``each`` by name; return the answers that came.

        An answer that is not as ``expect`` states (:mod:`fedvine.core.expect`), or is an error, is
        lost. Raises :class:`RoundAborted` if more answers are lost than the quorum allows.
        """
        def one(name: str) -> Any:
            answer = ask(self.send, name, self.deadline, **request, **(each or {}).get(name, {}))
            check(answer, expect)
            return answer

        answers, lost = gathered({n: self._threads.submit(one, n) for n in self.everyone},
                                  request["do"])
        self.gone |= {n for n, (error, _) in lost.items() if isinstance(error, Gone)}
        self.refusals |= {n: why for n, (error, why) in lost.items() if isinstance(error, Refused)}
        for name in self.everyone:
            self._note(name, answers=name in answers)
        enough(answers, lost, self.quorum)
        return answers

    def save(self, checkpoint: str) -> dict[str, Packed]:
        """Let every client save at its site; nothing of it comes to the server."""
        self.all(None, do="save", moment=checkpoint)
        return {}

    def restore(self, saved: Mapping[str, Packed], checkpoint: str | None) -> None:
        """Let every client restore the save ``checkpoint``.

        A client without that save (it is new, or was away) begins afresh, with the stages that
        arrive from now on and those it missed.
        """
        self.all(None, do="restore", moment=checkpoint)

    def close(self) -> None:
        """End the threads that send."""
        self._threads.shutdown(wait=False)

    def checkpoints(self) -> set[str]:
        """Return the saves that enough clients for the quorum can restore.

        Clients that took no part yet at a save, or had left, do not count.
        """
        found = {name: set(saves) for name, saves in
                 self.all(Several(Text(20), 1000), do="moments").items()}

        def enough_have(save: str) -> bool:
            t = int(save[:6]) if save[:6].isdecimal() else -1
            there = self.whole.at(t).clients if 0 <= t < self.whole.stages else ()
            needed = math.ceil(self.quorum * len(there) - 1e-9)
            return bool(there) and sum(save in found.get(n, ()) for n in there) >= needed

        return {save for save in set().union(*found.values()) if enough_have(save)}


def ask(send: Send, name: str, deadline: float, pool: Pool | None = None, /,
        **request: Any) -> Any:
    """Send one request to one site and return its answer.

    Raises :class:`Unreachable` without an answer, :class:`Refused` for one that cannot be read, and
    :class:`Failed` for an error at the site (:func:`sentence`).
    """
    block = send(name, dumps(pack(request)), deadline)
    try:
        answer = unpack(loads(block, pool))
        known = answer.keys() & {"error", "reply"}
    except Exception as error:  # any error: the bytes may be a stranger's
        raise Refused(f"it cannot be read ({type(error).__name__}: {error})") from error
    if len(known) != 1:
        raise Refused("it is neither a reply nor an error")
    if "error" in answer:
        raise Failed(f"it is an error: {sentence(answer['error'])}")
    return answer["reply"]


def _reply(answer: Any) -> tuple[Packed, float]:
    """Return the reply in an answer to a call, and the seconds that it took."""
    if not isinstance(answer, list) or len(answer) != 3 or not isinstance(answer[1], list) or any(
            not isinstance(b, np.ndarray) or b.dtype != np.uint8 or b.ndim != 1
            for b in answer[1]):
        raise Refused("it is no answer to a call")
    check(answer[0], Text(MOST_BYTES, bytes))
    check(answer[2], Number(0))
    return Packed(answer[0], answer[1]), answer[2]


def gathered(futures: Mapping[str, Future[Any]], what: str) -> tuple[
        dict[str, Any], dict[str, tuple[Exception, str]]]:
    """Return the results by name; and of failed futures the error and a sentence."""
    answers, lost = {}, {}
    for name, future in futures.items():
        try:
            answers[name] = future.result()
        except Unreachable as error:
            lost[name] = error, f"{name} did not answer the call {what}"
        except Refused as reason:
            lost[name] = reason, f"{name}'s answer to {what} was refused, as {reason}"
    return answers, lost


def enough(answers: Mapping[str, Any], lost: Mapping[str, tuple[Exception, str]], quorum: float
            ) -> None:
    """Raise :class:`RoundAborted` below the quorum; :class:`FedvineError` where all refused."""
    if not answers and lost and all(isinstance(error, Refused) for error, _ in lost.values()):
        raise FedvineError("; ".join(why for _, why in lost.values()))
    if len(answers) < quorum * (len(answers) + len(lost)) - 1e-9:
        raise RoundAborted("; ".join(why for _, why in lost.values()))


def first_seen_elsewhere(seen: Mapping[str, tuple[np.ndarray, np.ndarray]]
                         ) -> dict[str, np.ndarray]:
    """Return for every site when each of its users was first seen at another, float64.

    For scoring alone; infinity for never. ``seen`` are the sites' ``arrivals`` (keys uint64 [n],
    times float64 [n]): the server cannot read the keys.
    """
    found = {}
    for name, (keys, _) in seen.items():
        others = [(k, t) for other, (k, t) in seen.items() if other != name]
        first = np.full(len(keys), np.inf)
        for theirs, times in others:
            order = np.argsort(theirs)
            at = find(theirs[order], keys)
            met = at >= 0
            first[met] = np.minimum(first[met], times[order[at[met]]])
        found[name] = first
    return found


def open_run(clients: RemoteClients, run: str, number: str, plan: PlanLike, travelled: bool,
             classes: dict[str, Any] | None = None,
             evaluate: Callable[[RemoteClients], None] | None = None,
             erased: Collection[str] = ()) -> None:
    """Open a run at every site; the method is a name and numbers, never code.

    ``number`` belongs to this run folder alone: two runs of one name and experiment share nothing.
    Facts about the data go along where the server has any. Where the plan grows, each site first
    takes in its rows of the stages that are new. ``classes`` are those of labelled graphs; the
    sites took in their new rows when they were asked for these. ``evaluate`` has names evaluated
    before their keys are needed. ``erased`` are numbers of erasures that were carried out.
    Raises :class:`RoundAborted` if fewer sites answer than the quorum needs.
    """
    with_data, world = not clients.method.server_holds_graph, clients.whole
    same = {"run": run, "number": number, "plan": plan.facts(), "seed": world.seed,
            "protocol": clients.protocol.model_dump(mode="json"),
            "method": {"name": clients.method.name, **clients.method.model_dump(mode="json")}}
    if plan.living and with_data and classes is None:
        clients.all(None, {n: {"since": world.since.get(n, 0)} for n in clients.everyone},
                    do="grow", **same)
    if evaluate is not None and with_data and classes is None:
        evaluate(clients)
    seen = (Array("uint64", ("users",)), Array("float64", ("users",), low=-LATEST, high=LATEST))
    arrivals = (first_seen_elsewhere(clients.all(seen, do="arrivals"))
                if travelled and with_data and classes is None else {})
    clients.all(None, {n: {"elsewhere": arrivals.get(n)} for n in clients.everyone}, do="open",
                clients=list(clients.everyone), stages=world.stages, **same,
                **({"classes": classes} if classes is not None else {}),
                **({"erased": list(erased)} if erased else {}),
                **({"facts": world.facts} if world.facts else {}),
                **({"since": dict(world.since)} if world.since else {}),
                **({"until": dict(world.until)} if world.until else {}))


# -- a site's errors as they travel: a code, and no sentence of the site's own ---------------------
# A sentence may hold a cell, a column or a path of the site's table, so it stays in the site's
# account. What travels is ``[code, *words]``; the server makes its sentence of the code. The words
# are of the request and of the site's policy, never of its table.
WORD, WORDS = 100, 4    # characters of a word, and words, that are read

#: The server's sentence for each code; ``{0}``, ``{1}`` are the words.
SENTENCES = {
    "seal": "a site answers its own server alone, and each request once",
    "unread": "the request cannot be read there",
    "unknown": "a site does not do what was asked",
    "terms": "the server has not said there what this run would do",
    "closed": "no run is open there",
    "another": "another run is open there",
    "facts": "it cannot read the server's facts about its graph",
    "arrivals": "the server sent arrivals that do not fit the site's users",
    "settings": "the method, its constants or the protocol are not valid there; the method must be "
                "installed at all machines, and fedvine in one version",
    "device": "torch finds no GPU there, and its site.toml has device = \"cuda\"; with \"auto\" it "
              "computes on what it has",
    "task": "a federation does not carry the method's task",
    "no-edges": "its tables are a labelled graph, and the run predicts links; it joins with a "
                "table of edges that has times",
    "no-nodes": "its table has edges alone, and the run classifies nodes; it joins with --data "
                "NODES --edges EDGES",
    "open-classes": "it gives keys of its classes alone, and the run wants their names; leave "
                    "class_names = \"open\" out of the experiment, or let it join with "
                    "--open-classes",
    "classes": "it cannot read the server's classes",
    "columns": "its columns of features are not those of the run; name the same ones at all sites, "
               "in one order",
    "table": "its table cannot be opened; its account says why",
    "new-class": "a new class in its table is nearly a known one, or has only one row; its account "
                 "says which: correct it there, or set sure = true under [data] of its site.toml",
    "far": "a time of its table is far from all others there; its account says which: correct it "
           "there, or set sure = true under [data] of its site.toml",
    "span": "its times are far from those of all other sites, as of another unit or dates that are "
            "written in another way; write them alike, or set sure = true under [data] of its "
            "site.toml",
    "rows": "its table has lost or changed rows that the run has learned, or cannot be kept; its "
            "account says which",
    "erasure": "it has erased somebody, and waits until the server has dropped what it learned; a "
               "site that erases twice in a day waits a day",
    "gate": "its gate is closed: a new stage has unusual rows; its people look at them, and take "
            "[gate] out of its site.toml to go on",
    "changed": "its table (or the shared key) has changed since this run began; put back the one "
               "it began with, or begin a new run with another --out",
    "names": "not all of its names have been evaluated, or the hub's proof does not hold; its "
             "account says which",
    "match": "it has counted users in common with that site today, or with as many sites as it "
             "does in a day",
    "query": "raw answers to queries do not leave a site",
    "method": "the call is not one that the method takes; the site's account says why",
    "sum": "a step of a secure sum was refused there, as another one was meant or a client's keys "
           "are not those of the site's roster; the site's account says why",
    "roster": "the site has no roster of all sites' fingerprints that fits its own key, which "
              "secure sums need; fedvine join KIT --roster FILE there",
    "roster-names": "the site's roster does not have {0}; let all sites confirm one roster of the "
                    "sites that take part",
    "roster-size": "the site's roster has {0} sites, of which a secure sum needs {1}, and {2} take "
                   "part; let all sites confirm a roster of those that do",
    "spent": "its limit of privacy is spent; it sends nothing with noise any more",
    "failed": "the request failed there; the site's account says why",
    "policy-method": "the site's policy does not allow the method {0}",
    "policy-field": "the site's policy wants {0} to be {1}, and in this run it is {2}",
    "policy-epsilon": "the site's policy allows an epsilon of {0} at most, and in this run it is "
                      "{1}",
    "policy-times": "the site's policy lets no times leave at which users were first seen; set "
                    "travelled = false in the experiment",
    "policy-bytes": "the site's policy lets {0} leave in a round at most, and {1} would",
    "policy-hour": "the site's policy lets {0} leave in an hour at most outside of rounds",
    "policy-runs": "the site keeps {0} runs, as many as its policy allows; somebody there has to "
                   "delete one from the kit's memory",
    "bounds": "it counts edges up to {0} times at most",
}


class Refusal(FedvineError):
    """A site's refusal of a request: ``code`` and ``words`` travel, ``text`` stays at the site.

    Without ``text`` the server's sentence is the site's too.
    """

    def __init__(self, code: str, *words: str, text: str | None = None) -> None:
        self.sent = [code, *(str(word)[:WORD] for word in words)]
        super().__init__(text or sentence(self.sent))


def sentence(sent: Any) -> str:
    """Return the sentence of ``[code, *words]``, which may come from a stranger."""
    if not isinstance(sent, list) or not 0 < len(sent) <= 1 + WORDS or not all(
            isinstance(part, str) and len(part) <= WORD for part in sent):
        return "an error without a code that is known here"
    code, *words = (" ".join("".join(c if c.isprintable() else " " for c in part).split())
                    for part in sent)
    try:
        return SENTENCES[code].format(*words)
    except (KeyError, IndexError):
        return "an error without a code that is known here"

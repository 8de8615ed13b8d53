"""How replies of clients become one: the field ``aggregate`` of a method, ``[aggregate]`` of a run.

The class of the field says what can be chosen: :class:`Sum` masks
(:mod:`fedvine.aggregate.bonawitz`), :class:`NoisySum` noise too, and in
:mod:`fedvine.aggregate.means` a rule against false updates. ``clients.mean`` and ``clients.sum``
come here, and at the client the reply of every function with ``@on_client(combined=...)``. The
client's side binds: it bounds, adds noise, encodes and masks such a reply whatever the server
wants, and refuses a request in the clear.

Clients may vanish at any exchange of a secure sum as long as floor(2 n / 3) + 1 of n, and the run's
quorum, stay.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedvine.aggregate.answered import Kind as Given
from fedvine.aggregate.answered import answered, fits
from fedvine.aggregate.bonawitz import FalseSecret, Party, fewest, open_sum, usable
from fedvine.aggregate.noise import protect, to_fixed
from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Array, Flag, Named, Number, Text
from fedvine.core.message import pack
from fedvine.core.method import Client, on_client
from fedvine.core.replies import RoundAborted

Kind = Literal["mean", "sum"]

KEY = Text(32, bytes, least=32)     # a public key, a hash, or two halves of a private key
BOX = Text(64, bytes, least=64)     # three sealed shares of 16 bytes and the seal
SHARE = Text(16, bytes, least=16)
SIGNATURE = Text(1024, bytes, least=32)
KEYS = {"seal": KEY, "mask": KEY, "own": KEY, "roster": KEY, "needed": Number(1, 1e5, whole=True),
        "listed": Named(Text(32)), "content": Text(32), "of": Text(32, bytes),
        "public": Text(2048, bytes, least=32), "signature": SIGNATURE}
NO_TERMS: dict[str, Any] = {"listed": {}, "content": ""}     # of a client that keeps nothing


class Part(NamedTuple):
    """A client's part in a sum, float64 [n], before it is bounded.

    ``clip`` is the largest L2 norm; None: any. ``exact`` float64 [n] is added after it was bounded
    where there is no noise. ``of`` counts the edges, labelled nodes or users behind it,
    or behind each of its places, int [n]; None: not stated, which ``grain`` refuses.
    """

    value: np.ndarray
    clip: float | None = None
    exact: np.ndarray | None = None
    of: int | np.ndarray | None = None


class Aggregate(BaseModel):
    """Base of what can be chosen: nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True,
                              allow_inf_nan=False)

    @property
    def hides(self) -> bool:
        """Return whether clients send combined replies under masks."""
        return False

    def needed(self, clients: int) -> int:
        """Return how many of ``clients`` must answer in any case, whatever the quorum."""
        return 1

    # -- at the client ---------------------------------------------------------------------------
    def opened(self, client: Client, function: Any, message: list[Any]) -> None:
        """Take what masks need off a call of a combined function; refuse a call in the clear."""

    def leaving(self, client: Client, kind: Kind, reply: Any) -> Any:
        """Return a combined reply as it leaves the client."""
        return reply


class Sum(Aggregate):
    """Sums in fixed point, under masks where ``secure`` is set."""

    secure: bool = Field(default=False, description="clients send under masks, and the server sees "
                         "only sums; false: the same without masks, to compare")
    threshold: float = Field(default=0.6, gt=0, le=1, description="share of the clients that must "
                             "stay for a sum to be opened; where secure, at least floor(2 n / 3) "
                             "+ 1 of n: all of 2 or 3 clients")
    grain: int = Field(default=1, ge=1, description="edges or labelled nodes (of a class or a row "
                       "its own, of items with one hash distinct users) that a client's part in a "
                       "sum is of at least; what is of fewer stays at the client, and counts in a "
                       "later stage when there are enough")

    @property
    def hides(self) -> bool:
        """Return whether clients send combined replies under masks."""
        return self.secure

    def needed(self, clients: int) -> int:
        """Return how many of ``clients`` must stay: a share, and where secure more than 2/3."""
        share = min(clients, max(2, math.ceil(self.threshold * clients - 1e-9)))
        return max(share, fewest(clients)) if self.secure else share

    def sum(self, clients: Clients, function: Callable[..., Any], *same: Any, length: int,
            once: bool = False) -> tuple[np.ndarray, tuple[str, ...]]:
        """Sum the vectors that ``function`` returns at the clients.

        Args:
            clients: to call.
            function: a client function with ``combined``, which returns a :class:`Part`, float64
                or, with a point that is fixed already, uint64 [length], or such sums by name.
            *same: its arguments, the same for all clients.
            length: of the vectors.
            once: as in ``clients.call``.

        Returns:
            The sum, uint64 [length] in fixed point, over the clients that stayed, and their names.
            It is 0 and of none where clients were in a sum of the same rows with others before
            (:mod:`fedvine.aggregate.answered`), and these are away now, or give other rows.

        Raises:
            RoundAborted: if fewer clients stayed than are needed, or one sent something false.
        """
        everyone = len(clients.names)
        if not everyone:        # all clients come in later stages
            return np.zeros(length, np.uint64), ()
        needed = self.needed(everyone)
        vector = Array("uint64", (length,), most=8 * length)
        if not self.secure or everyone == 1:
            sent = clients.call(function, *same, expect=vector, once=once and not self.secure,
                                quorum=max(clients.quorum, needed / everyone))
            return np.asarray(np.sum(list(sent), axis=0, dtype=np.uint64)), sent.names
        enough = max(needed, math.ceil(clients.quorum * everyone - 1e-9))

        def ask(step: int, *what: Any, of: Iterable[str], **options: Any) -> dict[str, Any]:
            return dict(clients.call(*what, quorum=enough / max(len(set(of)), 1), later=False,
                                     step=step, **options).items())

        whole, plain = function.__whole__, function.__plain__   # type: ignore[attr-defined]
        there = [name for name in clients.names if name not in clients.barred]
        if len(there) < enough:
            raise RoundAborted(f"a secure sum needs {enough} clients, and has {len(there)} without "
                               f"{', '.join(sorted(clients.barred))}, who sent a false part")
        keys = ask(1, self.sum_keys, number := time.time_ns(), whole,
                   digest_of(function.__name__, same), plain, of=there, only=there, expect=KEYS)
        keys, needed = alike({name: sent for name, sent in keys.items() if (
            sent["listed"].keys() <= set(clients.everyone))}, enough, number)
        enough = max(enough, needed)
        listed = [sent["listed"] for sent in keys.values() if sent["listed"]]
        nothing: tuple[np.ndarray, tuple[str, ...]] = np.zeros(length, np.uint64), ()
        only = {n for n, sent in keys.items() if not listed or not sent["content"]}.union(*listed)

        def fit(names: Iterable[str]) -> bool:
            there = {n: keys[n]["content"] for n in names if keys[n]["content"]}
            return all(fits(one, there) for one in listed)

        if not only <= set(keys) or len(only) < enough or not fit(only):
            return nothing
        keys = {name: sent for name, sent in keys.items() if name in only}
        try:
            shares = ask(2, self.sum_shares, keys, of=keys, only=keys,
                         expect=Named(BOX, only=frozenset(keys), least=frozenset(keys)))
            masked = ask(3, function, *same, of=shares, expect=vector, once=once, per_client={
                n: {sender: sealed[n] for sender, sealed in shares.items()} for n in shares})
        except RoundAborted:        # played again, without those whom most of the others doubt
            doubts = clients.call(self.sum_doubts, only=keys, quorum=0, later=False, step=4,
                                  expect=Named(Flag(), only=frozenset(keys)))
            votes = Counter(name for doubted in doubts for name in doubted)
            clients.barred |= {name for name, many in votes.items() if 2 * many > len(keys)}
            raise
        if not fit(masked):
            return nothing
        came, gone = frozenset(masked), frozenset(shares) - frozenset(masked)
        enough = needed     # from here on the sum stays the same, whoever answers
        signed = ask(4, self.sum_agree, sorted(came), of=came, only=came, expect=SIGNATURE)
        parts = ask(5, self.sum_unmask, signed, of=signed, only=signed, expect={
            "own": Named(SHARE, only=came, least=came), "mask": Named(KEY, only=gone, least=gone)})
        try:
            return open_sum(masked, keys, shares, parts, needed), tuple(masked)
        except FedvineError as error:
            if isinstance(error, FalseSecret):  # the round is played again, without that client
                clients.barred.add(error.client)
            raise RoundAborted(str(error)) from error

    @on_client
    def sum_keys(self, client: Client, number: int, whole: bool = False, what: bytes = b"",
                 plain: bool = False) -> dict[str, Any]:
        """Return signed keys for one sum (exchange 0); ``number`` must be above all before.

        Also what the client gives, and what the sum must be of. ``whole``: it is also of rows of
        earlier stages; ``plain``: it gets no noise; ``what``: a digest of the function and its
        arguments. That, the run, its plan and the stage are signed, so all clients of a sum are
        asked for the same.
        """
        from fedvine.aggregate.identities import identity_of
        if type(number) is not int or number <= client.sums.get("number", 0):
            raise FedvineError("The server began a sum with a number that was used before; "
                               "refused.")
        identity = identity_of(client)
        client.sums.pop("released", None)       # the noise in a sum that was never opened
        client.sums |= {"number": number, "whole": whole is True, "plain": plain is True,
                        "what": what, "t": client.place[0]}
        kept = self.remembers(client)
        client.sums["party"] = Party(
            identity, number, self.needed(len(identity.roster)),
            digest_of(client.terms, [client.place[0], whole is True, plain is True, what]),
            **kept.terms(client, self.grain, whole is True) if kept else NO_TERMS)
        return client.sums["party"].keys()

    @on_client
    def sum_shares(self, client: Client, keys: dict[str, dict[str, Any]]) -> dict[str, bytes]:
        """Return an encrypted share for every client (exchange 1)."""
        return _party(client).shares(keys)

    @on_client
    def sum_doubts(self, client: Client) -> dict[str, bool]:
        """Return the clients whose keys or shares this one could not use in the sum that is on."""
        return dict.fromkeys(_party(client).doubted, True)

    @on_client
    def sum_agree(self, client: Client, came: list[str]) -> bytes:
        """Sign the list of clients that are in the sum (exchange 3), one list a sum."""
        party = _party(client)
        if client.place[0] != client.sums["t"]:
            raise FedvineError("The server would go on with a sum in another stage; refused.")
        if "released" in client.sums:       # the noise in it is not for a sum of others
            client.ledger.opened(client.sums["released"], came)
        signed = party.agree(came)
        if kept := self.remembers(client):
            kept.agree(client, party.said("content"), self.grain, client.sums["whole"])
        return signed

    @on_client
    def sum_unmask(self, client: Client, signed: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
        """Return shares to open the sum with (exchange 4), for the list that all signed."""
        found = _party(client).unmask(signed)
        if self.given(client) == "in":
            client.left_out = {**vars(client).get("left_out", {}), client.sums["function"]: False}
        return found

    # -- what of a stage is in sums -------------------------------------------------------------
    def begins(self, client: Client) -> int:
        """Note that the client takes in its stage now; return the stage's number.

        Sums of what a client has taken in are of this stage's rows only after it did so, and only
        if it did so once. Raises :class:`FedvineError` for a second time, and for an earlier stage.
        """
        if client.place[0] <= client.observed:
            raise FedvineError("The server let a client take in a stage twice; refused.")
        client.observed = client.place[0]
        return client.observed

    def remembers(self, client: Client) -> Any:
        """Return what the client's sums were of; None where nothing depends on it.

        That is with noise, whose own ledger has each release, and in one process without
        ``grain``.
        """
        there = client.answered is not None and self.secure
        return answered(client) if there or self.grain > 1 else None

    def given(self, client: Client) -> Given:
        """Return whether the client's rows of this stage are in sums, wait, or are left out."""
        kept = self.remembers(client)
        return kept.stage(client, self.grain) if kept else "in"

    def waited(self, client: Client) -> bool:
        """Return, before :meth:`given` of a stage, whether the stage before is still in no sum."""
        was = vars(client).get("summed")
        return bool(was and self.remembers(client) and not was["given"] and was["kind"] != "out")

    def was_left_out(self, client: Client, function: Callable[..., Any]) -> bool:
        """Return whether the client's last part of ``function`` was in no sum that was opened."""
        return vars(client).get("left_out", {}).get(function.__name__, False)

    def opened(self, client: Client, function: Any, message: list[Any]) -> None:
        """Take the sealed shares off a call; refuse one without them where masks are meant."""
        client.sums["sealed"] = None
        if vars(client).get("observed", client.place[0]) != client.place[0]:
            raise FedvineError("The server asked for a sum of a stage that was not taken in; "
                               "refused.")
        if not self.secure:
            client.sums |= {"whole": function.__whole__, "plain": function.__plain__}
        if not self.secure or (client.identity is None and len(client.world.clients) == 1):
            return
        sealed = message.pop() if message else None
        if not isinstance(sealed, dict) or not all(isinstance(v, bytes) for v in sealed.values()):
            raise FedvineError("The server asked for an upload without masks, which this run "
                               "(aggregate.secure = true) does not give; refused.")
        name, (_, once) = function.__name__, client.once
        party = _party(client)
        party.expects("masked")     # before anything is drawn or noted
        began = [client.sums[key] for key in ("whole", "plain", "what", "t")]
        if began != [function.__whole__, function.__plain__, digest_of(name, message),
                     client.place[0]]:
            raise FedvineError(f"The server began another sum than that of {name} with these "
                               "arguments; refused.")
        client.sums["sealed"], client.sums["function"] = sealed, name
        if once is not None:        # what was in no sum is sent again
            lost = [0, 0] if self.was_left_out(client, function) else []
            client.once = name, lost if self.remembers(client) else None

    def leaving(self, client: Client, kind: Kind, reply: Any) -> Any:
        """Return a vector uint64 in fixed point, masked where the call was for masks."""
        sealed = client.sums.pop("sealed")
        if reply is None:
            return None
        if self.grain > 1 and (reply.of is None if isinstance(reply, Part) else (
                isinstance(reply, np.ndarray) and reply.dtype != np.uint64)):
            raise FedvineError("With aggregate.grain a part in a sum has to state of how many "
                               "edges or nodes it is: return Part(value, of=count).")
        if isinstance(reply, Part):
            of = np.asarray(1 if reply.of is None else reply.of)
            stays = of[~self.enough(of)].sum()
            client.sums["stays"] = client.sums.get("stays", 0) + int(stays)
            reply = self.protected(client, self.whole(reply), sealed)
        elif isinstance(reply, dict):       # sums by name: of each row its part of every one
            rows = [part.reshape(len(part), -1) for part in reply.values()]
            reply = np.concatenate(rows, 1).ravel()
        vector = reply if reply.dtype == np.uint64 else to_fixed(reply)
        if (kept := self.remembers(client)) and "released" not in client.sums:
            given = kept.stage(client, self.grain)
            whole = client.sums.get("whole", False)
            if given == "out" or (given == "wait" and not (whole and client.summed["last"])) or (
                    kept.sits_out(client, self.grain, bool(whole))):
                vector = np.zeros_like(vector)
                client.sums["stays"] = len(client.summed["rows"])
            if sealed is not None:
                client.left_out = {**vars(client).get("left_out", {}),
                                   client.sums["function"]: given != "out"}
            else:
                kept.agree(client, {}, self.grain, False)
        if sealed is None:
            return vector
        return _party(client).masked(vector, sealed)

    def enough(self, of: int | np.ndarray | None) -> np.ndarray:
        """Return whether so many edges, nodes or users are enough for a sum, bool, by place."""
        return np.asarray(1 if of is None else of) >= self.grain

    def whole(self, part: Part) -> Part:
        """Return a part with 0 in the places that are of fewer than ``grain``."""
        few = ~self.enough(part.of)
        return part if not few.any() else part._replace(
            value=np.where(few, 0.0, part.value),
            exact=None if part.exact is None else np.where(few, 0.0, part.exact))

    def protected(self, client: Client, part: Part, sealed: dict[str, bytes] | None) -> np.ndarray:
        """Return a client's part bounded; see :class:`NoisySum` for noise."""
        found = protect(client, part.value, part.clip, 0.0, 1)
        return found if part.exact is None else found + part.exact


class NoisySum(Sum):
    """Sums whose parts are bounded and get calibrated noise (:mod:`fedvine.aggregate.noise`)."""

    noise: float = Field(default=0.0, ge=0, description="noise multiplier z: deviation of the "
                         "noise in a sum, in units of the bound on one client's part; 0: none")
    delta: float = Field(default=1e-5, gt=0, lt=1, description="the delta of differential privacy")

    def hidden_among(self, clients: int) -> int:
        """Return in how many clients' noise a part is hidden: its own alone without masks."""
        return self.needed(clients) if self.secure else 1

    def deviation(self, clip: float, clients: int) -> float:
        """Return the deviation of the noise in a sum of all clients' parts of norm ``clip``."""
        return self.noise * clip * (clients / self.hidden_among(clients)) ** 0.5

    def remembers(self, client: Client) -> Any:
        """Return what the client's sums were of; None with noise, which has a ledger of its own."""
        noise = self.noise and not client.sums.get("plain")
        return None if noise else super().remembers(client)

    def protected(self, client: Client, part: Part, sealed: dict[str, bytes] | None) -> np.ndarray:
        """Return a client's part bounded, with its part of the noise."""
        if not self.noise:
            return super().protected(client, part, sealed)
        if part.clip is None:
            raise FedvineError("A part without a bound gets no noise, and does not leave.")
        among = 1 if sealed is None else self.hidden_among(len(client.world.clients))
        return protect(client, part.value, part.clip, self.noise, among, participants=sealed or ())


def digest_of(name: str, values: Iterable[Any]) -> bytes:
    """Return 32 bytes that change with a name or any of the values, which a message may hold."""
    packed, found = pack(list(values)), hashlib.blake2b(name.encode(), digest_size=32)
    for block in (packed.skeleton, *packed.buffers):
        found.update(len(block).to_bytes(8, "little") + bytes(block))
    return found.digest()


def participants(client: Client) -> Iterable[str]:
    """Return the clients that this call's reply is masked for; none without masks."""
    return client.sums.get("sealed") or ()


def alike(keys: dict[str, dict[str, Any]], enough: int, number: int
          ) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the keys of the largest group of clients that agree, and their threshold.

    They have one roster, were asked for the same sum, and have signed usable keys. Raises
    :class:`RoundAborted` if it has fewer clients than ``enough`` or their threshold.
    """
    groups: dict[tuple[bytes, int, bytes], list[str]] = {}
    for name, sent in sorted(keys.items()):
        if usable(name, number, sent):
            groups.setdefault((sent["roster"], sent["needed"], sent["of"]), []).append(name)
    (_, needed, _), names = max(groups.items(), key=lambda group: len(group[1]),
                                default=((b"", 1, b""), []))
    if len(names) < max(enough, needed):
        others = sorted(set(keys) - set(names))
        raise RoundAborted(
            f"{', '.join(others)} and {', '.join(names)} have different rosters or versions; let "
            "all sites confirm the same one with fedvine join --roster" if others else
            f"a secure sum needs {needed} clients by their rosters, and {len(names)} take part")
    return {name: keys[name] for name in names}, needed


def _party(client: Client) -> Any:
    """Return the client's side of the sum that is on; :class:`FedvineError` if there is none."""
    if "party" not in client.sums:
        raise FedvineError("The server asked for a part of a sum that has not begun here; refused.")
    return client.sums["party"]

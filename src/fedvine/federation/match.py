"""Count the users that two sites have in common, and tell nothing else: ``fedvine match``.

It is a private set intersection of Diffie and Hellman's kind in the version that gives the size
alone (``openmined-psi``, the extra ``names``). Of two sites the second one offers its users under a
key of its own, h(y)^b. The first one sends h(x)^a, gets h(x)^(a b) back in another order, and
counts. h is of an HMAC with the key that the sites share, so the hub, which passes messages on, can
make none itself. What leaves a site is the count as a multiple of its grain, or of 10. Sets are
filled up to a multiple of the grain with made-up users. A site counts with each other one once a
day.
"""

from __future__ import annotations

import datetime
import hmac
import json
import secrets
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, Refused
from fedvine.core.expect import Number, Text, check
from fedvine.core.files import atomic
from fedvine.core.replies import RoundAborted
from fedvine.engines.remote import Refusal, Send, Unreachable, ask
from fedvine.federation.policy import coarse

FILE = "match.json"     # in a site's memory: with whom it counted today; at the hub: the counts
MOST = 2 ** 31 - 1      # bytes of a message, as protobuf has it
FALSE = 1e-9            # chance of a false match, of all users together
GRAIN = 10              # counts are multiples of so many, or of a larger grain of the site's
A_DAY = 20              # sites that a site counts with, at most, as the hub could invent names


class Matching:
    """One site's side: its users, and the key of the pair that is on.

    Args:
        names: of its users, as bytes.
        secret: the key that sites share.
        grain: counts are given as multiples of it, and of 10 at least.
        file: keeps with whom it counted today.
    """

    def __init__(self, names: list[bytes], secret: bytes, grain: int, file: Path) -> None:
        self.grain = grain = max(grain, GRAIN)
        users = [hmac.digest(secret, b"match " + name, "sha256").hex() for name in names]
        users += [secrets.token_hex(32) for _ in range(-len(users) % grain)]
        order = np.random.default_rng(secrets.randbits(64)).permutation(len(users))
        self.users, self.file = [users[i] for i in order], file
        self._key: Any = None

    def offer(self, peer: str, count: int) -> bytes:
        """Return this site's users under a new key, for a site of ``count`` users."""
        psi = _psi()
        self._once_a_day(peer)
        self._key = psi.server.CreateWithNewKey(False)
        return self._key.CreateSetupMessage(FALSE, count, self.users,
                                            psi.DataStructure.RAW).SerializeToString()

    def request(self, peer: str) -> tuple[bytes, int]:
        """Return this site's users under a new key, and their number."""
        psi = _psi()
        self._once_a_day(peer)
        self._key = psi.client.CreateWithNewKey(False)
        return self._key.CreateRequest(self.users).SerializeToString(), len(self.users)

    def answer(self, request: bytes) -> bytes:
        """Return the other site's users under both keys, in another order; once."""
        return self._taken().ProcessRequest(_parsed(_psi().Request(), request)).SerializeToString()

    def count(self, offer: bytes, answer: bytes) -> int:
        """Return how many users both have, a multiple of the grain, rounded down; once."""
        psi = _psi()
        found = self._taken().GetIntersectionSize(_parsed(psi.ServerSetup(), offer),
                                        _parsed(psi.Response(), answer))
        return coarse(found - self.grain + 1, self.grain) if found >= self.grain else 0

    def _taken(self) -> Any:
        """Return the key of this pair, once."""
        key, self._key = self._key, None
        if key is None:
            raise Refusal("terms")
        return key

    def _once_a_day(self, peer: str) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        kept = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}
        peers = kept.get("peers", []) if kept.get("day") == today else []
        if peer in peers or len(peers) >= A_DAY:
            raise Refusal("match")
        with atomic(self.file, "w") as handle:
            json.dump({"day": today, "peers": [*peers, peer]}, handle)


def matched(names: list[str], send: Send, patience: float) -> dict[str, Any]:
    """Let each pair of sites count; return ``common``, [[name, name, count]], and why some lack.

    Raises :class:`RoundAborted` where no pair could.
    """
    common, lacking = list[list[Any]](), dict[str, str]()
    block = Text(MOST, bytes)
    for first, second in combinations(sorted(names), 2):
        try:
            sent = ask(send, first, patience, do="match", step="request", peer=second)
            check(sent, [block, Number(0, MOST, whole=True)])
            offer = ask(send, second, patience, do="match", step="offer", peer=first,
                        given=[int(sent[1])])
            check(offer, block)
            answer = ask(send, second, patience, do="match", step="answer", peer=first,
                         given=[sent[0]])
            check(answer, block)
            count = ask(send, first, patience, do="match", step="count", peer=second,
                        given=[offer, answer])
            check(count, Number(0, MOST, whole=True))
            common.append([first, second, int(count)])
        except (FedvineError, Refused, Unreachable) as error:
            lacking[f"{first}, {second}"] = str(error)
    if not common:
        raise RoundAborted("; ".join(f"{pair}: {why}" for pair, why in lacking.items()))
    return {"common": common, "lacking": lacking}


def write(out: Path, found: Mapping[str, Any]) -> None:
    """Write what was found into the run folder."""
    out.mkdir(parents=True, exist_ok=True)
    with atomic(out / FILE, "w") as handle:
        json.dump(found, handle, indent=1)


def _parsed(message: Any, block: bytes) -> Any:
    try:
        message.ParseFromString(block)
    except Exception as error:      # protobuf has an error of its own
        raise Refusal("unread") from error
    return message


def _psi() -> Any:
    try:
        import private_set_intersection.python as psi
    except ImportError as error:
        raise FedvineError('fedvine match needs the package openmined-psi; pip install -c '
                           'constraints.txt ".[names]" at all sites.') from error
    return psi

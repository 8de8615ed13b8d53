"""A secure sum beside a plain one: seconds, bytes, and exactness when clients vanish; and names."""

from __future__ import annotations

import functools
import hmac
import importlib.util
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from fedvine.aggregate.bonawitz import Party, open_sum
from fedvine.aggregate.identities import RosterMember, der, fingerprint
from fedvine.aggregate.noise import to_fixed
from fedvine.core.message import pack
from fedvine.core.rng import rng
from fedvine.federation.pseudonyms import HubHalf, Pseudonyms


@functools.cache
def identities(count: int) -> dict[str, RosterMember]:
    """Clients with keys as those of kits (RSA, 2048 bits) and a roster."""
    private = {f"client-{i:02d}": rsa.generate_private_key(65537, 2048) for i in range(count)}
    roster = {n: fingerprint(der(k.public_key())) for n, k in private.items()}
    return {n: RosterMember(n, k, roster) for n, k in private.items()}


def one(count: int, length: int, vanish: int | None) -> dict[str, Any]:
    """One sum of ``count`` clients; the last one sends nothing from exchange ``vanish`` on."""
    draw = rng(0, "secure", count)
    people = identities(count)
    names = sorted(people)
    vectors = {n: to_fixed(draw.normal(size=length)) for n in names}
    cpu = {"client": 0.0, "server": 0.0}
    parties = {n: Party(people[n], 1) for n in names}
    needed = parties[names[0]].threshold

    def here(step: int) -> list[str]:
        return names[:-1] if vanish is not None and vanish <= step else names

    began = time.process_time()
    keys = {n: parties[n].keys() for n in here(0)}
    shares = {n: parties[n].shares(keys) for n in here(1)}
    masked = {n: parties[n].masked(vectors[n], {s: shares[s][n] for s in shares})
              for n in here(2)}
    signed = {n: parties[n].agree(masked) for n in here(3)}
    opened = {n: parties[n].unmask(signed) for n in here(4)}
    cpu["client"] = (time.process_time() - began) / count
    began = time.process_time()
    total = open_sum(masked, keys, shares, opened, needed)
    cpu["server"] = time.process_time() - began
    began = time.process_time()
    plain = np.asarray(np.sum([vectors[n] for n in masked], axis=0, dtype=np.uint64))
    cpu["plain"] = time.process_time() - began
    first = names[0]
    got = {s: shares[s][first] for s in shares}
    more = sum(pack(x).nbytes for x in (keys, keys[first], shares[first], got, signed,
                                        signed[first], opened[first]))
    return {**cpu, "exact": bool((total == plain).all()), "bytes": more}


def measure() -> Iterator[dict[str, Any]]:
    """Rows for ``scripts/bench secure``: CPU seconds of one client and of the server for one sum
    of doubles, beside the plain sum of the same vectors; the floor is what ChaCha20 needs for
    the masks. Raises AssertionError if a sum is not exact."""
    yield from names()
    for count in (4, 10):
        for length in (100_000, 1_000_000):
            floor = stream_seconds(length)
            for vanish in (None, 0, 1, 2, 3, 4):
                r = one(count, length, vanish)
                assert r["exact"]
                where = "nobody vanishes" if vanish is None else f"one vanishes in {vanish}"
                size = f"{length:,} numbers, {count} clients, {where}"
                masks = 1 + (count - 1)       # its own, and one for each other client
                yield {"name": f"client: {size}", "ours": r["client"], "other": r["plain"],
                       "ratio": r["client"] / r["plain"], "floor": masks * floor}
                yield {"name": f"server: {size}", "ours": r["server"], "other": r["plain"],
                       "ratio": r["server"] / r["plain"], "floor": count * floor}


def names(count: int = 10_000) -> Iterator[dict[str, Any]]:
    """Rows on names by a key in two halves: CPU seconds of a site and of the hub for ``count``
    names, beside HMACs of them with one key."""
    if importlib.util.find_spec("voprf") is None:       # the extra names
        return
    listed = [f"person {i}".encode() for i in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        half, site = HubHalf(Path(folder), count, 0), Pseudonyms(Path(folder) / "names.npz")
        times = [time.process_time()]
        blinded = site.blind(listed, 1)
        times.append(time.process_time())
        evaluated = half.evaluate("site", blinded)
        times.append(time.process_time())
        site.take(evaluated, half.public)
        times.append(time.process_time())
        for name in listed:
            hmac.digest(bytes(32), name, "sha256")
        times.append(time.process_time())
    blind, hub, take, plain = np.diff(times)
    each = (blinded.nbytes + len(evaluated)) / count
    for what, ours in (("site", blind + take), ("hub", hub)):
        yield {"name": f"{what}: {count:,} names in two halves, {each:.0f} bytes a name",
               "ours": ours, "other": plain, "ratio": ours / plain, "floor": plain}


def stream_seconds(length: int) -> float:
    """What the key stream of one mask costs, the best of three."""
    cipher = [Cipher(algorithms.ChaCha20(bytes(32), bytes(16)), mode=None) for _ in range(3)]
    block, best = bytes(8 * length), float("inf")
    for c in cipher:
        began = time.process_time()
        c.encryptor().update(block)
        best = min(best, time.process_time() - began)
    return best

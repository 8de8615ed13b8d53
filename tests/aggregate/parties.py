"""Clients of secure sums for tests: keys as those of kits, a roster, and the steps of a sum."""

import functools

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedvine.aggregate.bonawitz import Party
from fedvine.aggregate.identities import RosterMember, der, fingerprint

NAMES = ["ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ivy", "jon"]


@functools.cache
def key(name):
    """A private key; "bob again" is another one, such as the hub could certify for bob."""
    return Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32))


def roster(names):
    return {n: fingerprint(der(key(n).public_key())) for n in names}


def identities(count, secret=None):
    names = NAMES[:count]
    return {n: RosterMember(n, key(n), roster(names), secret and secret + n.encode())
            for n in names}


class Sum:
    """A sum on the way, with the messages of each exchange, so that a test can turn to lying."""

    def __init__(self, count, number=1, known=None, least=1):
        known = known or identities(count)
        self.names = sorted(known)
        self.parties = {n: Party(known[n], number, least) for n in self.names}
        self.vectors = {n: np.full(3, i + 1, np.uint64) for i, n in enumerate(self.names)}

    def keys(self):
        self.sent_keys = {n: p.keys() for n, p in self.parties.items()}
        return self.sent_keys

    def shares(self, names=None):
        self.keys()
        self.sent = {n: self.parties[n].shares(self.sent_keys) for n in names or self.names}
        return self.sent

    def sealed(self, name, of=None):
        return {n: self.sent[n][name] for n in of or self.sent}

    def masked(self, names=None):
        self.shares()
        self.came = {n: self.parties[n].masked(self.vectors[n], self.sealed(n))
                     for n in names or self.names}
        return self.came

    def agreed(self, came):
        self.masked()
        self.signed = {n: self.parties[n].agree(came) for n in came}
        return self.signed

"""Exact samples of the discrete Gaussian N_Z(0, sigma^2), which floating point cannot leak.

P[X = x] is proportional to exp(-x^2 / (2 sigma^2)) over the integers x. The method is that of
Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS 2020): a
discrete Laplace variable (their Algorithm 2) of scale t is accepted with probability
``exp(-(|Y| - sigma^2/t)^2 / (2 sigma^2))`` (Algorithm 3). Here ``sigma`` is an integer and
t = sigma, so all probabilities are products of fractions of 63-bit integers, and no number is ever
rounded.

Bits come from ChaCha20 (RFC 8439) with a key of 32 bytes; the same key gives the same samples.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numba import njit

from fedvine.core.errors import FedvineError

LARGEST = 1 << 40       # of sigma; a sample is above 2^62 with probability e^(-2^43)
_WORDS = 1 << 15        # fewest random words drawn at a time
_PER_SAMPLE = 24        # random words that a sample takes on average, roughly; more are drawn


class Stream:
    """Random words that cannot be told from uniform ones without the ``key`` of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> np.ndarray:
        """Return the next words of the stream, uint64 [count]."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), "<u8")


def discrete_gaussian(sigma: int, count: int, key: bytes) -> np.ndarray:
    """Draw ``count`` independent samples, int64 [count].

    Args:
        sigma: the parameter, 1 to 2^40; the deviation is at most this, and equal to it in double
            precision from 3 on.
        count: how many.
        key: 32 random bytes that are used for nothing else.

    Returns:
        The samples.

    Raises:
        FedvineError: for a ``sigma`` out of range.
    """
    if not 1 <= sigma <= LARGEST:
        raise FedvineError(f"Noise with a deviation of {sigma} steps of 2^-24 cannot be drawn; it "
                           "must be from 1 to 2^40: choose another noise or clip.")
    stream, left = Stream(key), np.empty(0, np.uint64)
    samples, done = np.empty(count, np.int64), 0
    while done < count:
        wanted = max(_WORDS, (count - done) * _PER_SAMPLE)
        # Words of a sample that was not finished are used again: none is ever skipped.
        left = np.concatenate([left, stream.words(min(wanted, 1 << 22))])
        done, used = _fill(samples, done, np.uint64(sigma), left)
        left = left[used:]
    return samples


@njit(cache=True, nogil=True)
def _below(bound, words, at):  # pragma: no cover - compiled
    """Draw an integer 0 to ``bound`` - 1; ``at[0]`` is the next word, above all words: too few."""
    most = np.uint64(0xFFFFFFFFFFFFFFFF)
    last = most - (most % bound + np.uint64(1)) % bound     # the last word of whole rounds
    while True:
        if at[0] >= len(words):
            at[0] = len(words) + 1
            return np.uint64(0)
        word = words[at[0]]
        at[0] += 1
        if word <= last:
            return word % bound


@njit(cache=True, nogil=True)
def _exp(top, second, under, half, words, at):  # pragma: no cover - compiled
    """Draw true with probability exp(-g), g = top second / under^2 / (1 + half) in [0, 1].

    Algorithm 1: the number of successes of trials of probability g/1, g/2, ... before a failure is
    even. A trial of a product is several trials, one of each factor. ``second`` = ``under``: left
    out.
    """
    k = np.uint64(1)
    while at[0] <= len(words):
        success = _below(under, words, at) < top
        if success and second != under:
            success = _below(under, words, at) < second
        share = k * np.uint64(2) if half else k
        if success and share > np.uint64(1):
            success = _below(share, words, at) == np.uint64(0)
        if not success:
            return k % np.uint64(2) == np.uint64(1)
        k += np.uint64(1)
    return False


@njit(cache=True, nogil=True)
def _sample(sigma, words, at):  # pragma: no cover - compiled
    """Draw one sample by Algorithms 2 and 3, unless words are too few."""
    one = np.uint64(1)
    while at[0] <= len(words):
        offset = _below(sigma, words, at)                       # Algorithm 2 with t = sigma, s = 1
        if not _exp(offset, sigma, sigma, False, words, at):
            continue
        whole = np.uint64(0)
        while _exp(one, one, one, False, words, at):            # exp(-1)
            whole += one
        negative = _below(np.uint64(2), words, at) == one
        size = offset + sigma * whole
        if negative and size == np.uint64(0):
            continue
        # Algorithm 3: exp(-d^2 / (2 sigma^2)) with d = | |Y| - sigma | = a sigma + b is
        # exp(-1/2)^(a a) exp(-b/sigma)^a exp(-b^2 / (2 sigma^2)).
        d = size - sigma if size > sigma else sigma - size
        a, b = d // sigma, d % sigma
        good = True
        for _ in range(a * a):
            if not _exp(one, one, one, True, words, at):
                good = False
                break
        if good:
            for _ in range(a):
                if not _exp(b, sigma, sigma, False, words, at):
                    good = False
                    break
        if good and _exp(b, b, sigma, True, words, at):
            return -np.int64(size) if negative else np.int64(size)
    return np.int64(0)


@njit(cache=True, nogil=True)
def _fill(samples, done, sigma, words):  # pragma: no cover - compiled
    """Fill ``samples`` from ``done`` on; return the number filled and of words used for them."""
    at, used = np.zeros(1, np.int64), 0
    while done < len(samples):
        value = _sample(sigma, words, at)
        if at[0] > len(words):
            break
        samples[done] = value
        done, used = done + 1, at[0]
    return done, used

"""The contract suite against methods that break rules, and what a method may not do."""

import numpy as np
import pytest
import torch
from toys import Fifo

from fedvine import testing
from fedvine.core.method import Field, on_client


class Hides(Fifo):
    """Keeps memory in the cache, where nothing may be kept."""

    @on_client
    def touched(self, client):
        client.cache["n"] = client.cache.get("n", 0) + 1
        return super().touched(client) ^ np.uint64(client.cache["n"])


class Counts(Fifo):
    """Keeps memory outside of the client, so that a repeated call counts twice."""

    @on_client
    def touched(self, client):
        client.world.facts["n"] = client.world.facts.get("n", 0) + 1
        return super().touched(client) ^ np.uint64(client.world.facts["n"])


class Global(Fifo):
    """Draws from torch's global generator."""

    @on_client
    def train(self, client, values):
        return torch.rand_like(values)


class Peeks(Fifo):
    """Learns from the whole part, also from what has not come yet."""

    @on_client
    def observe(self, client):
        whole = client.past.src.base if client.past.src.base is not None else client.past.src
        client.edges = np.stack([whole, whole], 1)[-self.capacity:].astype(np.int64)


class Bare(Fifo):
    """Has a field that nobody explains."""

    secret: int = Field(1)


class Nan(Fifo):
    """Answers with something that is no score."""

    @on_client
    def predict(self, client, values, queries):
        return values.new_full((len(queries),), float("nan"))


class Counting(Fifo):
    """Answers by the number of users that will ever be there."""

    @on_client
    def predict(self, client, values, queries):
        wrong = torch.from_numpy(queries.dst * len(client.past.src_ids) % 7)
        return super().predict(client, values, queries) + wrong


@pytest.mark.parametrize(("broken", "check"), [
    (Hides, testing.check_engines_agree), (Counts, testing.check_resume),
    (Counts, testing.check_killed_in_a_round), (Global, testing.check_randomness_is_local),
    (Peeks, testing.check_no_future_leak), (Bare, testing.check_fields_are_documented),
    (Nan, testing.check_empty_single_idle_late), (Counting, testing.check_growth)],
    ids=lambda x: x.__name__)
def test_a_broken_method_is_caught(broken, check):
    with pytest.raises((AssertionError, ValueError)):
        check(broken.tiny())


def test_only_client_functions_of_the_method_can_be_called():
    class Wrong(Fifo):
        def round(self, server, clients, at):
            clients.call(self.rounds_at, 1)

    with pytest.raises(ValueError, match="mark it with @on_client"):
        testing.run_small(Wrong()).finish()


def test_a_call_without_expect_names_the_line_to_add():
    class Silent(Fifo):
        @on_client
        def count(self, client) -> int:
            return len(client.stage)

        def round(self, server, clients, at):
            clients.call(self.count)

    with pytest.raises(ValueError, match=r"Silent.count .* add expect=Number\(whole=True\) to "
                                         r"clients.call\(self.count"):
        testing.run_small(Silent()).finish()


def test_queries_exist_only_while_scoring():
    class Early(Fifo):
        def round(self, server, clients, at):
            clients.call(self.wanted, expect={})

    with pytest.raises(ValueError, match="only while the library scores"):
        testing.run_small(Early()).finish()


def test_a_client_error_names_the_client_and_the_place():
    class Fails(Fifo):
        @on_client
        def touched(self, client):
            if client.name == "bob":
                raise KeyError("no such user")
            return super().touched(client)

    with pytest.raises(ValueError, match=r'client "bob" failed in touched .stage 0, round 1.'):
        testing.run_small(Fails()).finish()

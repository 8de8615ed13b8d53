"""Calls to clients: how many answers are enough, what is counted, who hears what it missed."""

from typing import ClassVar

import numpy as np
import pytest
from toys import Fifo

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Array
from fedvine.core.message import pack
from fedvine.core.method import Field, Method, Server, on_client
from fedvine.engines.faults import MockClients
from fedvine.experiments import run_folder

WORD = Array("uint8", (None,))


class Letters(Method):
    """Sends each client a letter of another length, or all of them the same one."""

    name: ClassVar[str] = "toy_letters"
    rounds: int = Field(1, description="rounds a stage")
    common: bool = Field(False, description="all get the same")

    def start(self, world):
        return Server()

    def round(self, server, clients, at):
        if self.common:
            clients.call(self.receive, np.zeros(1000), expect=WORD)
        else:
            clients.call(self.receive, "same", per_client={n: np.zeros(100 * (k + 1))
                                                           for k, n in enumerate(clients.names)},
                         expect=WORD)

    @on_client
    def receive(self, client, *letter):
        return np.zeros(10 * len(client.name), np.uint8)

    @on_client
    def predict(self, client, queries):
        return np.zeros(len(queries))

    def answer(self, server, clients, at):
        return clients.call(self.predict)


def received(folder, method):
    """What the log of a run says of each call of ``receive``, in order."""
    testing.run_small(method, out=folder).finish()
    return [line for line in run_folder.read_lines(folder, "messages.jsonl")
            if line["function"] == "receive"]


def test_bytes_down_are_those_of_every_clients_own_letter(tmp_path):
    each = received(tmp_path / "each", Letters())
    expected = sum(pack(["same", np.zeros(100 * (k + 1))]).nbytes for k in range(3))
    assert len(each) == 4 and all(call["down"] == expected for call in each)
    assert all(call["up"] == 3 * pack(np.zeros(30, np.uint8)).nbytes for call in each)
    same = received(tmp_path / "same", Letters(common=True))
    assert all(call["down"] == 3 * pack([np.zeros(1000)]).nbytes for call in same)


@pytest.mark.parametrize(("quorum", "enough"), [(0.5, 2), (0.34, 2), (1 / 3, 1), (2 / 3, 2),
                                                (0.67, 3), (0.0, 0), (1.0, 3)])
def test_a_quorum_is_rounded_up_to_whole_clients(quorum, enough):
    """Of three clients: with as many answers as that the run goes on, with one fewer it stops."""
    for answering in range(4):
        away = {(1, 1): testing.NAMES[answering:]}
        made = testing.run_small(Letters(), engine=MockClients, quorum=quorum, away=away)
        if answering >= enough:
            assert made.finish().summary["stages"] == 4
        else:
            with pytest.raises(FedvineError, match=r"call receive .stage 1, round 1. in 3"):
                made.finish()


def test_missed_arrivals_are_sent_once_and_then_no_more():
    letters = []

    class Counting(MockClients):
        def exchange(self, sent):
            def noted():
                for name, envelopes in sent:
                    letters.append((name, envelopes[-1].place,
                                    [e.function for e in envelopes[:-1]]))
                    yield name, envelopes
            return super().exchange(noted())

    away = {(1, r): {"cyd"} for r in range(3)} | {(2, 0): {"cyd"}}
    testing.run_small(Fifo(), engine=Counting, quorum=0.5, away=away).finish()
    with_more = [(name, place, missed) for name, place, missed in letters if missed]
    # While it is away every call brings what it missed; once it has answered, none does.
    assert {name for name, _, _ in with_more} == {"cyd"}
    assert [(place[:2], missed) for _, place, missed in with_more] == [
        (place, ["observe"]) for place in ((1, 1), (1, 2), (1, 3), (2, 1))]


def test_all_missed_arrivals_are_heard_in_their_order():
    heard: dict[str, list[str]] = {name: [] for name in testing.NAMES}

    class Twice(Fifo):
        def arrive(self, server, clients, at):
            super().arrive(server, clients, at)
            clients.call(self.note, f"stage {at.t}")

        @on_client
        def observe(self, client):
            heard[client.name].append("edges")
            super().observe(client)

        @on_client
        def note(self, client, what):
            heard[client.name].append(what)

    away = {(t, r): {"cyd"} for t in (1, 2) for r in range(3)}
    testing.run_small(Twice(), engine=MockClients, quorum=0.5, away=away).finish()
    assert heard["cyd"] == heard["ada"] == [
        word for t in range(4) for word in ("edges", f"stage {t}")]

"""Bad replies of sites behind bytes count as missing, whatever the method, function and phase."""

import threading

import numpy as np
import pytest
from engines.test_remote import Federation

from fedvine import testing
from fedvine.core import registry
from fedvine.core.errors import Refused
from fedvine.core.message import Packed, dumps, loads, pack, unpack
from fedvine.core.replies import Query
from fedvine.engines.bad_replies import JudgedMixin, Recording, every_kind
from fedvine.engines.remote import RemoteClients


class Spoilt(Federation):
    """Sites whose replies to calls are made bad on their way, one a round."""

    def __init__(self, folder, method, spoiler):
        super().__init__(folder, method, quorum=0.3)
        self.spoiler, self.lock = spoiler, threading.Lock()
        self.engine = type("Judged", (JudgedMixin, RemoteClients), {"spoiler": spoiler})

    def deliver(self, name, block, seal, seconds):
        answer, request = super().deliver(name, block, seal, seconds), unpack(loads(block))
        said = unpack(loads(answer)).get("reply")
        if request.get("do") != "call" or said is None:
            return answer
        reply = Packed(said[0], [np.array(b) for b in said[1]])
        with self.lock:
            bad = self.spoiler.spoil(name, tuple(request["place"]),
                                     Query.of_code(request["asks"]), request["function"], reply)
        if isinstance(bad, Refused):
            return dumps(pack({"error": str(bad)}))
        return answer if bad is None else dumps(pack({"reply": [bad.skeleton, list(bad.buffers),
                                                                0.0]}))


@pytest.mark.parametrize("name", [
    "fedlink", "popularity", pytest.param("fedlink_plus", marks=pytest.mark.slow)])
def test_a_bad_reply_of_a_site_counts_as_missing_and_the_log_says_why(tmp_path, name):
    method = registry.method(name).tiny()
    calls = testing.run_small(method, engine=Recording).finish().clients.calls
    spoiler, left, turn = every_kind(sorted(calls)), -1, 0
    while spoiler.left() != left:
        left, turn = spoiler.left(), turn + 1
        made = Spoilt(tmp_path / str(turn), method, spoiler).run(save_every=1e9).finish()
        assert made.summary is not None
    assert not spoiler.passed

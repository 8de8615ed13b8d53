"""Who a row lives with, against a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedvine.methods._fedlink.row_ownership import RowOwnership

rounds = st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 12), unique=True)),
                  max_size=9)


@given(rounds)
def test_claims_equal_a_dictionary(steps):
    claims = RowOwnership()
    met = {name: [] for name in "abc"}                  # keys by client, in its own order
    owner: dict[int, tuple[str, int] | None] = {}
    told, asked = {n: [] for n in "abc"}, {n: [] for n in "abc"}
    for number, (name, keys) in enumerate(steps):
        keys = [k for k in keys if k not in met[name]]
        claims.claim(name, np.array(keys, np.uint64))
        for key in keys:
            local = len(met[name])
            met[name].append(key)
            if key not in owner:
                owner[key] = name, local
                continue
            told[name].append(local)
            if owner[key] is not None:
                asked[owner[key][0]].append((owner[key][1], key))
                owner[key] = None
        if number % 2:                                  # saved and back
            again = RowOwnership()
            again.load_state_dict(claims.state_dict())
            claims = again
        if number == 4:
            claims.settled(name)
            told[name], asked[name] = [], []
        assert {n: len(met[n]) for n in claims.heard} == claims.heard
        owed = claims.owed()
        for n in "abc":
            found = owed.get(n, {"told": [], "asked": []})
            assert sorted(found["told"]) == sorted(told[n])
            pairs = zip(found["asked"], claims.keys.get(n, []), strict=True)
            assert sorted((int(i), int(k)) for i, k in pairs) == sorted(asked[n])

"""Which client keeps a row, against a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedvine.methods._fedlink.row_ownership import RowOwnership

rounds = st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 12), unique=True)),
                  max_size=9)


@given(rounds)
def test_row_ownership_equals_a_dictionary(steps):
    ownership = RowOwnership()
    met = {name: [] for name in "abc"}                  # keys by client, in its own order
    owner: dict[int, tuple[str, int] | None] = {}
    shared, wanted = {n: [] for n in "abc"}, {n: [] for n in "abc"}
    for number, (name, keys) in enumerate(steps):
        keys = [k for k in keys if k not in met[name]]
        ownership.add(name, np.array(keys, np.uint64))
        for key in keys:
            local = len(met[name])
            met[name].append(key)
            if key not in owner:
                owner[key] = name, local
                continue
            shared[name].append(local)
            if owner[key] is not None:
                wanted[owner[key][0]].append((owner[key][1], key))
                owner[key] = None
        if number % 2:                                  # saved and back
            again = RowOwnership()
            again.load_state_dict(ownership.state_dict())
            ownership = again
        if number == 4:
            ownership.done(name)
            shared[name], wanted[name] = [], []
        assert {n: len(met[n]) for n in ownership.reported} == ownership.reported
        pending = ownership.pending()
        for n in "abc":
            found = pending.get(n, {"told": [], "asked": []})
            assert sorted(found["told"]) == sorted(shared[n])
            pairs = zip(found["asked"], ownership.wanted_keys.get(n, []), strict=True)
            assert sorted((int(i), int(k)) for i, k in pairs) == sorted(wanted[n])

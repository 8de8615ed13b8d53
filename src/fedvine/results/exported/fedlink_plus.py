"""fedlink_plus's model: the shared weights, and the features of pairs at each client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import Run
from fedvine.methods._fedlink_plus import samples, travel
from fedvine.methods._fedlink_plus.features import TABLE, WIDTH
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.results.exported import Exported, ready

HOW = ("The sum of a pair's features times the shared weights. Features are counts of the client's "
       "own edges at the end of the run; they are here for all pairs that met, and for the "
       "likeliest items of each user with an edge at the client; users of other clients are not in "
       "the export.")


def fits(method: Any) -> bool:
    """Return whether a method answers as fedlink_plus does."""
    return isinstance(method, FedLinkPlus)


def exported(run: Run, top: int) -> Exported:
    """Return the model of a finished run, with features of the ``top`` items of each user."""
    server, method = run.at_the_end()[0], run.method
    assert isinstance(method, FedLinkPlus)
    w = server.newton.variants(milder=True).get(server.chosen[-1], server.newton.w)
    made = Exported("fedlink_plus", HOW, {"weights": w})
    columns = [*(f.name for f in TABLE), *(f"edge_{j}" for j in range(len(w) - WIDTH))]
    forecasts = Forecasts(run)
    for name, part in run.parts.items():
        if not len(part):
            continue
        users = [part.src_ids[i] for i in range(part.num_src)]
        best = forecasts.tops(name, users, top) if top else [[]] * len(users)
        src = np.concatenate([part.src, np.repeat(np.arange(len(users)), list(map(len, best)))])
        dst = np.concatenate([part.dst, part.dst_ids.numbers(
            [one.item for found in best for one in found])])
        pairs = np.unique(src.astype(np.int64) * part.num_dst + dst)
        src, dst = np.divmod(pairs, part.num_dst)
        run.ask(name, run.protocol.pairs(run.plan, src[:1], dst[:1], []))
        client = ready(run, name)
        x = samples.features(client, src, dst, np.full(len(src), run.plan.asked),  # type: ignore[attr-defined]
                             travel.lent(client.counts, None), method.near_by)
        items = pa.array([part.dst_ids[i] for i in range(part.num_dst)], pa.string())
        made.tables[name] = {"pairs": pa.table({
            "user": pa.array(users, pa.string()).take(pa.array(src)),
            "item": items.take(pa.array(dst)),
            **{column: pa.array(x[:, j]) for j, column in enumerate(columns)}})}
    return made

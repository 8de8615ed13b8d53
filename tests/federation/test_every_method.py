"""Every method of the shelf through the bytes of a federation: the scores of one process.

Links and labelled graphs lie at the sites; where the server holds the graph it reads its own table.
"""

import pytest
from federation.labelled import Federation, one_process, scores

from fedvine import testing
from fedvine.core import registry
from fedvine.core.ledger import seeded
from fedvine.data.plan import by_time
from fedvine.data.stream import EventStream
from fedvine.datasets import synthetic
from fedvine.experiments.experiment import Experiment
from fedvine.tasks.task import of

pytestmark = pytest.mark.slow


def shelf():
    """Every method with its smallest constants; of each that learns edges or classes, both."""
    for name in sorted(registry.methods()):
        kind = registry.method(name)
        tiny, found = kind.tiny(), kind.model_fields.get("target")
        yield pytest.param(tiny, id=name)
        if found is not None and "classes" in str(found.annotation):
            yield pytest.param(tiny.model_copy(update={"target": "classes"}), id=f"{name}-classes")


def at_sites(method):
    """Tables of links of the sites, what the order says of them, and the run of one process."""
    split, _ = testing.tiny_case()
    tables = {name: EventStream(part.src, part.dst, part.t, part.src_ids, part.dst_ids, name=name)
              for name, part in split.parts.items()}
    plan = by_time(split.stream, 1000.0, val=0.25, test=0.25)
    order = {"stages": "1000", "val": 0.25, "test": 0.25, "seed": 7,
             "protocol": testing.PROTOCOL.model_dump()}
    return tables, order, testing._run(method, (split, plan))


def at_the_server(method, monkeypatch):
    """The same where the server holds the graph, and the sites have no table."""
    monkeypatch.setattr(synthetic, "load", lambda *args, **options: testing.tiny_labelled())
    same = {"stages": "1000", "seed": 7, "protocol": of(method).tiny().model_dump()}
    one = Experiment.model_validate({
        **same, "data": "synthetic", "split": {"by": "client"},
        "method": {"name": method.name, **method.model_dump(mode="json", exclude_none=True)}}).run()
    for worker in one.clients.workers.values():
        worker.ledger.fresh = seeded(7)         # as at the sites
    return dict.fromkeys(testing.NAMES), {**same, "data": {"source": "synthetic"}}, one


@pytest.mark.parametrize("method", list(shelf()))
def test_a_federation_gives_what_one_process_gives(tmp_path, monkeypatch, method):
    if of(method).data == "graph":
        tables, order, one = None, {}, one_process(method)
    else:
        tables, order, one = (at_the_server(method, monkeypatch) if method.server_holds_graph else
                              at_sites(method))
    made, _ = Federation(tmp_path, method, tables, forecasts=2, **order).finish()
    assert any(stage.found for stage in made.stages)
    assert scores(made) == scores(one.finish())

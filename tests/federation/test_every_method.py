"""Methods of every kind through the bytes of a federation: the scores of one process.

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


# One of each kind of code; the contract suite sends the calls of every method as bytes.
METHODS = ("fedlink", "fedlink_plus", "fedlink_private", "popularity", "edgebank", "fed4dgnn",
           "feddgl", "scaffold", "power", "power_plus", "dslr_isolated", "fedpub", "fedsage_plus",
           "glfc", "hop_ral", "target", "joint", "common", "dgcolearn", "dgcolearn_plus", "dygrain",
           "feddgl_dyn", "d_fedgnn", "last_label")


def shelf():
    """Methods with their smallest constants; of DG-CoLearn, which learns edges or classes, both."""
    for name in METHODS:
        yield pytest.param(registry.method(name).tiny(), id=name)
    classes = registry.method("dgcolearn").tiny().model_copy(update={"target": "classes"})
    yield pytest.param(classes, id="dgcolearn-classes")


def at_sites(method):
    """Tables of links of the sites, what the order says of them, and the run of one process."""
    split, _ = testing.tiny_case()
    tables = {name: EventStream(part.src, part.dst, part.t, part.src_ids, part.dst_ids, name=name)
              for name, part in split.parts.items()}
    plan = by_time(split.stream, 1000.0, val=0.25, test=0.25)
    order = {"stages": "1000", "val": 0.25, "test": 0.25, "seed": 7,
             "protocol": testing.PROTOCOL.model_dump()}
    return tables, order, testing.run_small(method, (split, plan))


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

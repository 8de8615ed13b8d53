"""Every method under the contract suite, with settings and data under which other code runs."""

from typing import Any

import pytest
from toys import changed
from with_columns import with_columns, with_tables

from fedvine import testing
from fedvine.core import registry

QUICK = ("fedlink", "power", "dgcolearn", "popularity")     # the others are slow
LOCAL = {"schedule": "before"}
CHANGED = {"scope": "changed"}

#: What the small settings of a method do not reach; each stands for several settings.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "popularity": [{}, {"share": "all"}],
    "frequency": [{}, {"fade": 0.5, "share": "all"}],
    "edgebank": [{}, {"window": "unlimited"}],
    "fedlink": [{}, {"draw": "cyclic"}, {"capacity": "auto"}, {"join": "full", "capacity": 40}],
    "fedlink_plus": [{"buckets": 64}, {"share": "sums", "buckets": 64}, {
        "share": "sums", "buckets": 64, "aggregate": {"noise": 4.0, "secure": False}}],
    "dgcolearn": [
        {}, {"target": "classes"}, {"aggregate": {"min_group": 2}, "layers": 3},
        {**LOCAL, "temporal": "mlp", "exchange": "two-hop-exact"},
        {**CHANGED, "neighbours": 2, "stale": 3},
        {**CHANGED, "backbone": "evolvegcn-o", "window": 1},
        {**LOCAL, "target": "classes", "schedule": "first-epoch", "backbone": "evolvegcn-h"},
        {**LOCAL, "backbone": "gcrn-baseline", "exchange": "paper"},
        {**CHANGED, "backbone": "gcrn-gru", "target": "classes"},
        {**LOCAL, **CHANGED, "backbone": "gcrn-lstm"},
        {**CHANGED, "backbone": "tgn"}, {**LOCAL, "backbone": "tgn", "target": "classes"},
        {"backbone": "dygformer", "partition": "multilevel"},
        {**LOCAL, "backbone": "dygformer", "epochs": 2, "exchange": "none"}],
    "power_plus": [{}, {"rounds": 0}, {"width": 0}, {"folds": 1, "hops": 0}],
    "dgcolearn_plus": [{}, {**LOCAL, "rounds": 0}],
    "roland": [{"meta": 0.7, "norm": True, "target": "classes"}],
    "fedavg_dyn": [{}, {"target": "classes", "backbone": "evolvegcn-h"}],
    "fedsage_dyn": [{"target": "edges"}, {"target": "classes"}],
    "feddgl_dyn": [{"contrast": 3}],
}


def cases() -> list[Any]:
    """Return every method, with each of its settings."""
    found = []
    for name in sorted(registry.methods()):
        for values in SETTINGS.get(name, [{}]):
            marks = () if name in QUICK and not values else (pytest.mark.slow,)
            said = ",".join(f"{k}={v}" for k, v in values.items())
            found.append(pytest.param(name, values, marks=marks, id=f"{name}:{said}"))
    return found


def method(name: str, values: dict[str, Any]) -> Any:
    return changed(registry.method(name).tiny(), **values)


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize(("name", "values"), cases())
def test_contract(name, values, check):
    check(method(name, values))


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", ["fedlink", "fedlink_plus", "dgcolearn", "dgcolearn_plus"])
def test_contract_with_columns_of_edges_and_tables_of_nodes(name, check, monkeypatch):
    plain = testing.tiny_stream
    monkeypatch.setattr(testing, "tiny_stream",
                        lambda *a, **b: with_tables(with_columns(plain(*a, **b))))
    check(method(name, {}))


#: Settings of methods of tasks at their bounds, each of which runs to its end.
BOUNDS: dict[str, list[dict[str, Any]]] = {
    "ergnn": [{"select": "coverage"}, {"select": "clearest"}, {"select": "influence"}],
    "fedgta": [{"answers": "global", "moment": "raw", "orders": 3}, {"moment": "central"},
               {"similarity": 1.0, "steps": 1, "fraction": 0.4}],
    "fedpub": [{"answers": "global", "moments": "fresh"}, {"tau": 0.0},
               {"criterion": "cross-entropy", "fraction": 0.4}],
    "fedsage_plus": [{"answers": "global", "moments": "fresh"}, {"hide": 0.0}, {"jointly": 0},
                     {"alone": 0}, {"sample": 3, "fraction": 0.4}],
    "hop_ral": [{"hops": 0, "ridge": 10.0}, {"expansion": 0}, {"smoothing": 0.0}],
    "lander": [{"batches": 0}, {"warmup": 9}, {"distillation": 0.0}, {"anchoring": 0.0},
               {"batch": 1, "fraction": 0.4}],
    "motion": [{"answers": "global", "buffer": 0}, {"reduction": 0.95}, {"reduction": 0.0},
               {"share": 1.0, "fraction": 0.4}],
    "power": [{"transfer": "l1"}, {"transfer": "none"}, {"alpha": 1.0}, {"phi": 0.0},
              {"per_class": 0}, {"code_coverage": True}, {"clip": 1.0, "noise": 2.0},
              {"min_count": 5}, {"aggregate": {"secure": True}}, {"answers": "global"},
              {"moments": "fresh"}, {"reconstruction": "lbfgs"}, {"near": 0}],
    "target": [{"batches": 0}, {"warmup": 9}, {"distillation": 0.0, "answers": "global"},
               {"batch": 1, "fraction": 0.4}],
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), [
    pytest.param(n, v, id=f"{n}:{v}") for n, many in BOUNDS.items() for v in many])
def test_settings_at_their_bounds_run(name, values):
    made = testing.run_small(method(name, values)).finish()
    assert 0 <= made.scores["test"]["mean"]["am"] <= 100

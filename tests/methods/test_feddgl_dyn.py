"""FedDglDyn: its loss, prototypes and mixed models against slow computations."""

from typing import Any

import numpy as np
import pytest
import torch
from two_classes import SMALL, held, made

from fedvine.core import tree
from fedvine.rivals.feddgl_dyn import FedDglDyn, contrasted, likeness, margin


def test_the_contrast_of_prototypes_number_by_number():
    draw = np.random.default_rng(1)
    protos, made_, y = draw.normal(size=(5, 3)), draw.normal(size=(4, 3)), np.array([0, 1, 3, 0, 2])
    total = 0.0
    for p, j in zip(protos, y, strict=True):
        scores = [-np.linalg.norm(p - made_[k]) - (0.6 if k == j else 0) for k in range(4)]
        total -= scores[j] - np.log(np.exp(scores).sum())
    found = contrasted(*map(torch.from_numpy, (protos, y, made_)), 0.6)
    assert float(found) == pytest.approx(total / 5)
    mean = made_.copy()
    mean[1] = np.nan
    gaps = [min(np.linalg.norm(made_[a] - made_[b]) for b in (0, 2, 3) if a != b)
            for a in (0, 2, 3)]
    assert margin(torch.from_numpy(mean)) == pytest.approx(max(gaps))
    assert margin(torch.from_numpy(1e3 * made_)) == 100 and margin(torch.from_numpy(mean[1:2])) == 0


def test_the_share_of_the_own_model_grows_with_the_likeness_of_prototypes():
    made_ = torch.tensor([[1.0, 0.0], [0.0, 2.0], [torch.nan, torch.nan]])
    near = torch.tensor([[2.0, 0.0], [0.0, 4.0], [torch.nan, torch.nan]])
    one = torch.tensor([[1.0, 1.0], [torch.nan, torch.nan], [torch.nan, torch.nan]])
    away = -near
    cosines = np.array([1.0, 1 / np.sqrt(2), -1.0])
    wanted = np.exp(cosines / 2) / np.exp(cosines / 2).sum()
    np.testing.assert_allclose(likeness([near, one, away], made_), wanted, rtol=1e-5)


def test_the_loss_is_that_of_the_equation():
    found = made(FedDglDyn(distil=0.3, pull=0.7, **SMALL))
    next(iter(found))
    client, draw = held(found)[0], np.random.default_rng(5)
    rows = torch.from_numpy(draw.normal(size=(6, 5)))
    prototypes, labels = torch.from_numpy(draw.normal(size=(2, 5))), np.array([0, 0, 1, 0, 1])
    client.cache["prototypes"] = prototypes
    client.taught = {"places": np.array([1, 5]), "rows": torch.from_numpy(draw.normal(size=(2, 5)))}
    wanted = float(client.net.loss([rows[:5]], labels).detach())
    for row, place in enumerate((1, 5)):
        wanted += 0.3 / 10 * float(((rows[place] - client.taught["rows"][row]) ** 2).sum())
    for j in (0, 1):
        mine = np.mean([rows[i].numpy() for i in range(5) if labels[i] == j], 0)
        wanted += 0.7 / 10 * float(((mine - prototypes[j].numpy()) ** 2).sum())
    given = found.method.loss(client, rows, [torch.arange(5)], labels).detach()
    assert float(given) == pytest.approx(wanted)


@pytest.mark.slow
def test_sensitive_nodes_are_those_that_the_new_snapshot_moves_most_for_the_former_mean_model():
    class Watched(FedDglDyn):
        """What is taught is looked at while it is there."""

        def teach(self, client):
            before = tree.weights(client.net)
            super().teach(client)
            taught.append((client.name, client.taught, tree.clone(client.teacher),
                           client.part.ends.copy(), client.known.copy()))
            assert all(torch.equal(before[n], w) for n, w in client.net.named_parameters())

    taught: list[Any] = []
    found = made(Watched(sensitive=0.2, **SMALL), 2)
    for _ in zip(range(2), found, strict=False):
        pass
    client, method = held(found)[0], found.method
    _, kept, teacher, ends, known = next(x for x in taught if x[0] == client.name)
    net = tree.load(method.net(found.clients.world), teacher)
    count, moved = len(client.part.x), {}

    def rows(edges: np.ndarray) -> torch.Tensor:
        degree = torch.tensor([float((edges == i).sum()) for i in range(count)]).double()
        A = torch.eye(count).double()
        for a, b in edges.T:
            A[a, b] = A[b, a] = 1
        A = A / ((degree + 1)[:, None] * (degree + 1)).sqrt()
        x = torch.cat([client.part.x[:, :-1], degree.log1p()[:, None]], 1)
        h = (A @ x @ net.weight(0, x)).relu()
        return A @ h @ net.weight(1, h)
    with torch.no_grad():
        now, then = rows(ends), rows(known)
    for place in np.unique(known):
        moved[place] = float((now[place] - then[place]).square().sum())
    wanted = sorted(sorted(moved, key=lambda p: (-moved[p], p))[:int(np.ceil(0.2 * len(moved)))])
    assert kept["places"].tolist() == wanted and wanted
    torch.testing.assert_close(kept["rows"], now[wanted])

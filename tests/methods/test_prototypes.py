"""Prototypes: gradients equal autograd's, the server reads them back, noise is what it says."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedvine.aggregate.class_means import class_sums, protect
from fedvine.core.errors import FedvineError
from fedvine.core.ledger import Ledger, seeded
from fedvine.core.rng import torch_rng
from fedvine.core.state import Client, World
from fedvine.methods._power.equations import (
    class_means,
    encode,
    infer_labels,
    largest,
    neighbours,
    reconstruct,
)
from fedvine.nn.gradient_matching import Encoder, factors, minimise, mismatch

ACTIVATIONS = st.sampled_from(["relu", "sigmoid"])


@st.composite
def problems(draw, dtype=torch.float64):
    """(encoder, prototypes [P, F], labels [P]) of any small shape."""
    seed = draw(st.integers(0, 10**6))
    features, classes, count = (draw(st.integers(low, 9)) for low in (1, 2, 1))
    hidden = tuple(draw(st.lists(st.integers(8, 16), min_size=1, max_size=3)))
    encoder = Encoder.make(features, classes, hidden=hidden, activation=draw(ACTIVATIONS),
                           generator=torch_rng(seed, "encoder"))
    x = torch.randn(count, features, generator=torch_rng(seed, "x"), dtype=torch.float64)
    labels = torch.randint(classes, (count,), generator=torch_rng(seed, "labels"))
    return encoder, x.to(dtype), labels


def slow_loss(encoder, x, label):
    """Cross-entropy of one sample as a textbook writes it, and the parameters it depends on."""
    layers = [(w.to(x).requires_grad_(), b.to(x).requires_grad_())
              for w, b in zip(encoder.weights, encoder.biases, strict=True)]
    h = x
    for i, (weight, bias) in enumerate(layers):
        h = weight @ h + bias
        if i + 1 < len(layers):
            h = torch.relu(h) if encoder.activation == "relu" else torch.sigmoid(h)
    return cross_entropy(h[None], label[None]), layers


def slow_matching(encoder, x, label, gradients):
    """Eq. (11) of one sample, differentiable in x."""
    loss, layers = slow_loss(encoder, x, label)
    flat = [part for layer in layers for part in layer]
    names = [f"{kind}_{i}" for i in range(len(layers)) for kind in ("weight", "bias")]
    made = torch.autograd.grad(loss, flat, create_graph=True)
    return sum(((a - gradients[n]) ** 2).sum() for n, a in zip(names, made, strict=True))


def one(gradients, i):
    return {name: part[i] for name, part in gradients.items()}


@given(problems())
@settings(max_examples=50)
def test_encode_is_autograd_of_each_sample(problem):
    encoder, x, labels = problem
    sent = encode(encoder, x, labels)
    for i, label in enumerate(labels):
        loss, layers = slow_loss(encoder, x[i], label)
        for layer, pair in enumerate(layers):
            for name, slow in zip(("weight", "bias"), torch.autograd.grad(
                    loss, pair, retain_graph=True), strict=True):
                torch.testing.assert_close(sent[f"{name}_{layer}"][i], slow)


@given(problems(torch.float32))
@settings(max_examples=100)
def test_labels_and_prototypes_come_back(problem):
    encoder, x, labels = problem
    sent = encode(encoder, x, labels)
    assert torch.equal(infer_labels(sent), labels)
    back = reconstruct(encoder, sent)
    # A ReLU network may be dead at a sample: then the first layer is sent as zeros, and says so.
    alive = sent["bias_0"].abs().amax(1) > 0
    torch.testing.assert_close(back.prototypes[alive], x[alive], rtol=1e-6, atol=1e-30)
    assert back.converged[alive].all() and not back.converged[~alive].any()


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_closed_form_at_the_size_of_cora(activation):
    encoder = Encoder.make(1433, 7, activation=activation, generator=torch_rng(0))
    x = (torch.rand(35, 20, 1433, generator=torch_rng(1)) < 0.0127).float().mean(1)
    back = reconstruct(encoder, encode(encoder, x, torch.arange(35) % 7))
    error = (back.prototypes - x).norm(dim=1) / x.norm(dim=1)
    assert error.max() < 1e-6 and back.converged.all() and back.loss.max() < 1e-10


@given(problems(), st.integers(0, 1000))
@settings(max_examples=50)
def test_matching_loss_and_its_gradient_are_the_slow_ones(problem, seed):
    encoder, x, labels = problem
    encoder, truth = encoder.like(x), encoder.truth(x, labels)
    sent = encode(encoder, x, labels)
    trial = torch.randn(x.shape, generator=torch_rng(seed), dtype=x.dtype)
    parts, slope = mismatch(encoder, trial, truth, factors(encoder, x, truth))
    for i, label in enumerate(labels):
        at = trial[i].clone().requires_grad_()
        slow = slow_matching(encoder, at, label, one(sent, i))
        torch.testing.assert_close(parts[i].sum(), slow.detach())
        torch.testing.assert_close(slope[i], torch.autograd.grad(slow, at)[0])


@pytest.mark.slow
@pytest.mark.parametrize("features", [12, 60])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_lbfgs_finds_what_torch_finds_one_by_one(activation, features):
    """Wherever torch.optim.LBFGS gets there from one start, the batch does with a few."""
    encoder = Encoder.make(features, 3, hidden=(16,), activation=activation,
                           generator=torch_rng(3))
    x = torch.randn(6, features, generator=torch_rng(4), dtype=torch.float64)
    labels = torch.arange(6) % 3
    sent = encode(encoder, x, labels)
    found = reconstruct(encoder, sent, how="lbfgs", restarts=6, generator=torch_rng(5))
    assert found.converged.all() and found.loss.max() < 1e-8
    assert 0 < found.iterations.max() <= 300
    torch.testing.assert_close(found.prototypes, x, rtol=0, atol=2e-3)
    weight = torch.ones(features, 1, dtype=x.dtype, requires_grad=True)
    (found.prototypes @ weight).sum().backward()  # a model can be trained on them
    assert weight.grad is not None
    reached = 0
    for i in range(6):
        at = torch.randn(features, generator=torch_rng(6, i), dtype=x.dtype).requires_grad_()
        optimiser = torch.optim.LBFGS([at], max_iter=300, history_size=10, tolerance_grad=1e-12,
                                      tolerance_change=0)

        def closure(at=at, i=i, optimiser=optimiser):
            optimiser.zero_grad()
            loss = slow_matching(encoder, at, labels[i], one(sent, i))
            loss.backward(inputs=[at])
            return loss

        optimiser.step(closure)
        if (at.detach() - x[i]).abs().max() < 1e-3:
            reached += 1
            assert (at.detach() - found.prototypes[i]).abs().max() < 3e-3
    assert reached


def rosenbrock(x, rows):
    """The banana-shaped valley of each row, minimum 0 at ones."""
    with torch.enable_grad():
        at = x.clone().requires_grad_()
        values = (100 * (at[:, 1:] - at[:, :-1] ** 2) ** 2 + (1 - at[:, :-1]) ** 2).sum(1)
        slope = torch.autograd.grad(values.sum(), at)[0]
    return values.detach(), slope, values.detach() < 1e-16


def test_a_row_takes_the_same_way_alone_and_among_others():
    start = torch.randn(7, 2, generator=torch_rng(8), dtype=torch.float64)
    among, taken = minimise(rosenbrock, start, 300)
    assert (among - 1).abs().max() < 1e-6 and len(set(taken.tolist())) > 1
    for i in range(7):
        alone, took = minimise(rosenbrock, start[i:i + 1], 300)
        assert (alone - among[i]).abs().max() < 1e-6 and took == taken[i]


def test_lbfgs_stops_where_nothing_is_lower():
    end, taken = minimise(lambda x, rows: (torch.full_like(x[:, 0], math.nan), x, x[:, 0] > 9),
                          torch.ones(2, 3), 50)
    assert torch.equal(end, torch.ones(2, 3)) and taken.max() < 50


def test_what_is_no_single_sample_is_not_converged():
    encoder = Encoder.make(30, 4, generator=torch_rng(11))
    x = torch.randn(2, 30, generator=torch_rng(12))
    sent = encode(encoder, x, torch.tensor([1, 2]))
    summed = {name: part.sum(0, keepdim=True) for name, part in sent.items()}
    assert not reconstruct(encoder, summed).converged.any()
    assert not reconstruct(encoder, sent, torch.tensor([2, 1])).converged.any()


@given(st.integers(0, 30), st.integers(1, 6), st.integers(1, 7), st.integers(0, 1000))
@settings(max_examples=60)
def test_neighbours_against_a_plain_loop(count, k, block, seed):
    x = torch.randn(count, 4, generator=torch_rng(seed), dtype=torch.float64)
    pairs = set()
    for u in range(count):
        others = sorted((v for v in range(count) if v != u), key=lambda v: -float(x[u] @ x[v]))
        for v in others[:k]:
            pairs |= {(u, v), (v, u)}
    edges = neighbours(x, k, block)
    assert edges.dtype == torch.long and edges.shape == (2, len(pairs))
    assert list(map(tuple, edges.T.tolist())) == sorted(pairs)


def test_of_equal_neighbours_the_lower_number_is_first_also_after_rounding():
    for more in (0.0, 1e-7, -1e-7):         # 0 is as near to 1 as to 2, but for rounding
        x = torch.tensor([[1.0, 0.0], [2.0, 9.0], [2.0 + more, -9.0], [0.0, -9.0]])
        assert (0, 1) in list(map(tuple, neighbours(x.double(), 1).T.tolist()))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 12),
       st.integers(0, 1000))
def test_the_largest_are_the_same_after_rounding(scores, count, seed):
    """Equal within a millionth: the lower number first; more than that apart: by size."""
    exact = np.array(scores, float)
    noise = torch.rand(len(exact), generator=torch_rng(seed)).numpy() * 1e-7
    wanted = np.argsort(-exact, kind="stable")[:count]
    assert largest(exact, count).tolist() == wanted.tolist()
    assert largest(exact + noise * exact.max(), count).tolist() == wanted.tolist()


def test_the_largest_of_numbers_that_are_none_come_last():
    assert largest(np.array([np.nan, 1.0, -np.inf, 2.0]), 9).tolist() == [3, 1, 0, 2]
    assert largest(np.full(3, np.nan), 2).tolist() == [0, 1]


def test_class_means_are_means_of_shortened_nodes():
    features = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [0.0, 2.0]])
    labels = torch.tensor([0, 0, 2, 2])
    means, counts = class_means(features, labels, 4)
    assert torch.equal(counts, torch.tensor([2, 0, 2, 0]))
    torch.testing.assert_close(means, torch.tensor([[1.65, 2.2], [0, 0], [0, 1], [0, 0]]))
    short, _ = class_means(features, labels, 4, clip=1.0)
    torch.testing.assert_close(short, torch.tensor([[0.45, 0.6], [0, 0], [0, 0.5], [0, 0]]))


def somebody():
    return Client("ada", World(("ada",), 0, 1), ledger=Ledger(fresh=seeded(16)))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(0, 10))
def test_small_classes_are_withheld(counts, least):
    x = torch.randn(len(counts), 3, generator=torch_rng(13))
    kept, rows = protect(x, torch.tensor(counts), min_count=least, clip=math.inf, noise=0,
                         client=somebody())
    assert rows.tolist() == [c for c, n in enumerate(counts) if n >= max(least, 1)]
    assert torch.equal(kept, x[rows])


def test_noise_is_what_it_says_and_the_server_gets_no_more():
    """Deviation noise x clip / count; the closed form reads back the noisy mean."""
    features = torch.randn(30, 4000, generator=torch_rng(15))
    labels = torch.tensor([0] * 5 + [1] * 25)
    means, counts = class_means(features, labels, 2, clip=2.0)
    sent, rows = protect(means, counts, min_count=1, clip=2.0, noise=1.5, client=somebody())
    deviation = (sent - means).std(1)
    torch.testing.assert_close(deviation, 1.5 * 2.0 / counts, rtol=0.05, atol=0)
    encoder = Encoder.make(4000, 2, generator=torch_rng(17))
    got = reconstruct(encoder, encode(encoder, sent, rows)).prototypes
    torch.testing.assert_close(got, sent, rtol=1e-5, atol=1e-6)


def test_blanking_a_node_moves_a_mean_by_the_sensitivity_at_most():
    features = 9 * torch.randn(12, 5, generator=torch_rng(18), dtype=torch.float64)
    labels = torch.arange(12) % 3
    before, counts = class_means(features, labels, 3, clip=0.5)
    for node in range(12):
        blanked = features.clone()
        blanked[node] = 0
        moved = (class_means(blanked, labels, 3, clip=0.5)[0] - before).norm(dim=1)
        assert (moved <= 0.5 / counts + 1e-6).all() and moved.max() > 0


@pytest.mark.parametrize(("change", "words"), [
    ({"clip": 0.0}, "above 0"),
    ({"noise": -1.0}, "not be negative"),
    ({"clip": math.inf, "noise": 1.0}, "finite"),
    ({"clip": 0.1}, "class_means"),
])
def test_protection_that_could_not_hold_is_refused(change, words):
    given_ = {"min_count": 1, "clip": 10.0, "noise": 0.0, "client": somebody(), **change}
    with pytest.raises(FedvineError, match=words):
        protect(torch.ones(2, 3), torch.tensor([4, 5]), **given_)


@pytest.mark.parametrize(("shape", "labels", "words"), [
    ((2, 4), [0, 1], "reads 3 features"),
    ((2, 3), [0], "2 prototypes need as many labels"),
    ((2, 3), [0, 5], "between 0 and 1"),
    ((2, 3), [-1, 0], "between 0 and 1"),
])
def test_what_does_not_fit_the_encoder_is_refused(shape, labels, words):
    encoder = Encoder.make(3, 2, hidden=(4,), generator=torch_rng(0))
    with pytest.raises(FedvineError, match=words):
        encode(encoder, torch.zeros(shape), torch.tensor(labels))


@pytest.mark.parametrize("change", [
    {"weight_0": torch.zeros(2, 4, 9)}, {"bias_1": torch.zeros(3, 2)}, {"weight_2": torch.ones(2)},
])
def test_gradients_of_another_encoder_are_refused(change):
    encoder = Encoder.make(3, 2, hidden=(4,), generator=torch_rng(0))
    sent = encode(encoder, torch.zeros(2, 3), torch.tensor([0, 1]))
    (name,) = change
    with pytest.raises(FedvineError, match=name):
        reconstruct(encoder, sent | change)
    del sent["weight_1"]
    with pytest.raises(FedvineError, match="weight_1"):
        reconstruct(encoder, sent)


def test_lbfgs_without_a_generator_is_refused():
    encoder = Encoder.make(3, 2, hidden=(4,), generator=torch_rng(0))
    sent = encode(encoder, torch.zeros(2, 3), torch.tensor([0, 1]))
    with pytest.raises(FedvineError, match="generator"):
        reconstruct(encoder, sent, how="lbfgs")


def test_a_network_that_is_dead_at_the_sample_says_that_nothing_came_back():
    """No unit of the first layer is alive, so every gradient fits any prototype."""
    made = Encoder.make(3, 2, generator=torch_rng("dead"))
    dead = replace(made, weights=(made.weights[0] * 0, *made.weights[1:]),
                   biases=(made.biases[0] * 0 - 1, *made.biases[1:]))
    sent = encode(dead, torch.tensor([[0.9, -1.0, 0.6]]), torch.tensor([1]))
    assert not sent["bias_0"].any()
    assert not reconstruct(dead, sent).converged.any()


def test_means_of_nodes_that_are_alike_are_not_longer_than_clip():
    x = np.random.default_rng(0).normal(size=(1, 7)).astype(np.float32).repeat(60_000, 0)
    sums, counts = class_sums(x, np.zeros(len(x), int), 1, clip=1.0)
    assert np.linalg.norm(sums / counts) <= 1 + 1e-6

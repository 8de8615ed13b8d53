"""Messages survive the wire, nothing else does, and a receiver never shares memory."""

import gc
import math

import hypothesis.extra.numpy as hnp
import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.expect import Array, Number, Tensor
from fedvine.core.message import (
    MOST_SKELETON,
    Packed,
    Pool,
    Refused,
    accept,
    dumps,
    loads,
    pack,
    unpack,
)

leaves = (st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1)
          | st.floats(allow_nan=False) | st.text() | st.binary()
          | hnp.arrays(st.sampled_from([np.float32, np.int64, np.uint8, np.uint64, np.bool_]),
                       hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
trees = st.recursive(leaves, lambda t: st.lists(t) | st.dictionaries(st.text(), t)
                     | st.tuples(t, t), max_leaves=12)


def same(a, b):
    if isinstance(a, np.ndarray):
        return (isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
                and a.tobytes() == b.tobytes())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.slow
@given(trees)
def test_any_message_survives_the_wire(message):
    assert same(message, unpack(loads(dumps(pack(message)))))
    assert same(message, unpack(Pool().take(pack(message))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16,
                                   torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
def test_tensors_of_every_type_and_shape(dtype, shape):
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    back = unpack(loads(dumps(pack({"x": tensor}))))["x"]
    assert back.dtype == dtype and back.shape == tensor.shape and torch.equal(back, tensor)


def test_a_slice_and_a_transposed_tensor_arrive_as_they_look():
    x = torch.arange(24.0).reshape(4, 6)
    for view in (x.T, x[:, ::2], x[1:3]):
        assert torch.equal(unpack(Pool().take(pack(view))), view)


def test_numbers_of_another_byte_order_arrive_as_numbers():
    sent = np.arange(300, dtype=">i4")
    found = unpack(pack({"a": sent}))["a"]
    assert found.dtype == np.int32 and (found == sent).all()


def test_packing_copies_nothing_and_a_receiver_copies_once():
    x = torch.zeros(1000)
    packed = pack({"x": x})
    received = unpack(Pool().take(packed))["x"]
    x += 1
    assert unpack(packed)["x"].sum() == 1000   # still the sender's own memory
    assert received.sum() == 0                 # the receiver's copy
    large = unpack(Pool().take(pack({"x": torch.zeros(100_001)})))["x"]
    assert large.data_ptr() % 64 == 0


def test_memory_is_used_again_only_when_nobody_holds_it():
    pool = Pool()
    first = unpack(pool.take(pack(torch.full((100_000,), 1.0))))
    part = first[10:20]
    address = first.data_ptr()
    del first
    second = unpack(pool.take(pack(torch.full((100_000,), 2.0))))
    assert second.data_ptr() != address and part.sum() == 10
    gc.disable()  # leaving must not wait for the collector
    del part
    third = unpack(pool.take(pack(torch.full((100_000,), 3.0))))
    gc.enable()
    assert third.data_ptr() == address and second.sum() == 200_000


@pytest.mark.parametrize("bad", [{1, 2}, object(), lambda: 0, {("a",): 1}, np.array(["x"]),
                                 np.array([object()]), torch.ones(2).to_sparse(), 1j])
def test_other_things_are_refused_by_place(bad):
    with pytest.raises(ValueError, match="message"):
        pack({"deep": [1, bad]})


def test_forged_and_cut_messages_are_refused():
    good = pack({"x": torch.ones(4), "y": np.ones(3)})
    block = dumps(good)
    with pytest.raises(ValueError, match="cut short"):
        loads(block[:-1])
    with pytest.raises(ValueError, match="too many"):
        loads(block + b"x")
    with pytest.raises(ValueError, match="size"):
        unpack(Packed(good.skeleton, [good.buffers[0][:-4], good.buffers[1]]))
    with pytest.raises(ValueError, match="did not come"):
        unpack(Packed(good.skeleton, good.buffers[:1]))
    with pytest.raises(ValueError, match="refused"):
        unpack(Packed(good.skeleton.replace(b"float32", b"complex"), good.buffers))


def test_a_small_message_does_not_fill_the_memory():
    """A byte in the header is a buffer of a hundred bytes here; one in the skeleton a list."""
    header = msgspec.msgpack.encode([1, *[0] * 1_000_000])
    with pytest.raises(ValueError, match="more parts than it can name"):
        loads(len(header).to_bytes(4, "little") + header + b"\x90")
    for size in (MOST_SKELETON + 1, 2**60):
        header = msgspec.msgpack.encode([size])
        with pytest.raises(ValueError, match="more parts than it can name"):
            loads(len(header).to_bytes(4, "little") + header + bytes(100))
    with pytest.raises(ValueError, match="more parts"):
        loads(b"\x01\0\0\0\x90")
    many = [np.zeros(0, bool)] * 10_000
    assert len(unpack(loads(dumps(pack(many))))) == 10_000


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("kind", ["number", "tensor", "array", "half"])
def test_a_number_that_is_not_finite_is_refused_wherever_it_stands(bad, kind):
    held = {"number": bad, "tensor": torch.tensor([1.0, bad]), "array": np.array([[bad], [2.0]]),
            "half": torch.tensor([bad, 1.0], dtype=torch.float16)}[kind]
    expect = {"number": Number(), "tensor": Tensor("float32", (None,)),
              "array": Array("float64", (None, 1)), "half": Tensor("float16", (None,))}[kind]
    with pytest.raises(Refused, match=r"it\['deep'\]\[1\] .*not .*finite"):
        accept(pack({"deep": [0.0, held]}), {"deep": [Number(), expect]})

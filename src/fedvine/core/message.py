"""Messages: a msgpack skeleton and a list of raw buffers.

A message is a tree of None, bool, int, float, str, bytes, list, tuple, dict, NumPy arrays and torch
tensors. Packing writes the tree into a small skeleton in which each array is a number, and leaves
the arrays where they are: no byte of them is copied until a receiver takes its own copy. Nothing is
pickled and nothing but the types above is ever built from a message.
"""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fedvine.core.errors import FedvineError, Refused
from fedvine.core.expect import WIDTHS, check, is_tensor, name_of

ALIGN = 64  # buffers of large messages start at a multiple of it, for fast vector loads
MOST_SKELETON = 1 << 25     # bytes of a message beside its buffers
NAMED = 8       # bytes of the skeleton that name a buffer, at least
SMALL = 1 << 16  # bytes of a message up to which no memory is kept for it
_TUPLE, _TENSOR, _ARRAY = 1, 2, 3
_NUMPY = {name: np.dtype(name) for name in (
    "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split())}
_NAMES: dict[Any, str] = {dtype: name for name, dtype in _NUMPY.items()}
_encode = msgspec.msgpack.Encoder().encode
_NUMBERED = msgspec.msgpack.Decoder(tuple[str, list[int], int])     # dtype, shape, buffer


class Packed(NamedTuple):
    """A packed message: ``skeleton`` (msgpack) and ``buffers`` (uint8 arrays, not copied)."""

    skeleton: bytes
    buffers: list[np.ndarray]

    @property
    def nbytes(self) -> int:
        """Return the bytes that cross the wire, without the framing of the transport."""
        return len(self.skeleton) + sum(b.nbytes for b in self.buffers)


def pack(message: Any) -> Packed:
    """Pack ``message``; raises :class:`FedvineError` with the place of a value of another type."""
    buffers: list[np.ndarray] = []
    return Packed(_encode(_strip(message, buffers, ())), buffers)


def unpack(packed: Packed) -> Any:
    """Return the message; its arrays are views of ``packed.buffers``."""
    return _Rebuild(packed.buffers).decode(packed.skeleton)


class _Rebuild:
    """The decoder of arrays; a class, as a closure that calls itself would keep buffers alive."""

    def __init__(self, buffers: list[np.ndarray]) -> None:
        self.buffers = buffers

    def decode(self, data: bytes | memoryview) -> Any:
        """Decode msgpack with the extensions of this file."""
        return msgspec.msgpack.decode(data, ext_hook=self.extension, strict=False)

    def extension(self, code: int, data: memoryview) -> Any:
        """Return the tuple, array or tensor of an extension; :class:`FedvineError` for others."""
        if code == _TUPLE:
            return tuple(self.decode(data))
        if code not in (_TENSOR, _ARRAY):
            raise FedvineError(f"A message holds an unknown kind of value ({code}); refused.")
        dtype, shape, number = _NUMBERED.decode(data)
        if dtype not in (WIDTHS if code == _TENSOR else _NUMPY) or min(shape, default=0) < 0:
            raise FedvineError(f"A message holds an array of type {dtype!r}; refused.")
        if not 0 <= number < len(self.buffers):
            raise FedvineError("A message names a buffer that did not come with it; refused.")
        raw = self.buffers[number]
        size = WIDTHS[dtype] if code == _TENSOR else _NUMPY[dtype].itemsize
        if raw.nbytes != size * math.prod(shape):
            raise FedvineError("A message's buffer does not have the size it states; refused.")
        if code == _ARRAY:
            return raw.view(dtype).reshape(shape)
        import torch
        if raw.nbytes == 0:
            return torch.empty(shape, dtype=getattr(torch, dtype))
        if dtype in _NUMPY:
            return torch.from_numpy(raw.view(_NUMPY[dtype]).reshape(shape))
        return torch.from_numpy(raw).view(getattr(torch, dtype)).reshape(shape)


def _strip(value: Any, buffers: list[np.ndarray], where: tuple[Any, ...]) -> Any:
    """Return ``value`` with arrays replaced by numbers; add their bytes to ``buffers``.

    ``where`` is the path to ``value``, the last key first; it becomes text only for an error.
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, (str, int)):
                raise FedvineError(f"{_place(where)} has a key {name!r} that cannot travel; use "
                                   "text.")
        return {k: _strip(v, buffers, (k, where)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_strip(v, buffers, (i, where)) for i, v in enumerate(value)]
        return msgspec.msgpack.Ext(_TUPLE, _encode(items)) if isinstance(value, tuple) else items
    if is_tensor(value):
        import torch
        if value.layout == torch.strided and (name := name_of(value.dtype)) in WIDTHS:
            flat = value.detach() if value.requires_grad else value
            flat = (flat if flat.is_cpu else flat.cpu()).contiguous()
            if not flat.numel():
                raw = np.empty(0, np.uint8)
            elif name in _NUMPY:
                raw = flat.numpy().reshape(-1).view(np.uint8)
            else:
                raw = flat.reshape(-1).view(torch.uint8).numpy()
            return _number(_TENSOR, name, tuple(value.shape), raw, buffers)
    if isinstance(value, np.ndarray):
        native = value.dtype.newbyteorder("=")
        if native in _NAMES:
            flat = np.ascontiguousarray(value, native).reshape(-1).view(np.uint8)
            return _number(_ARRAY, _NAMES[native], value.shape, flat, buffers)
    raise FedvineError(f"{_place(where)} is a {type(value).__name__}, which cannot travel; "
                       "send numbers, text, lists, dicts, arrays or tensors.")


def _place(where: tuple[Any, ...]) -> str:
    return f"{_place(where[1])}[{where[0]!r}]" if where else "message"


def _number(code: int, dtype: str, shape: tuple[int, ...], raw: np.ndarray,
            buffers: list[np.ndarray]) -> msgspec.msgpack.Ext:
    buffers.append(raw)
    return msgspec.msgpack.Ext(code, _encode((dtype, shape, len(buffers) - 1)))


def accept(packed: Packed, expect: Any = None) -> Any:
    """Return the message; raise :class:`Refused` unless it can be read and is as ``expect`` states.

    ``packed`` may come from a stranger: its parts may be of any type. ``expect`` is a statement of
    :mod:`fedvine.core.expect`; None: the message must be None.
    """
    try:
        if not isinstance(packed.skeleton, bytes) or any(
                not isinstance(b, np.ndarray) or b.dtype != np.uint8 or b.ndim != 1
                for b in packed.buffers):
            raise FedvineError("its parts are not bytes")
        message = unpack(packed)
    except Exception as error:  # any error: the bytes may be a stranger's
        raise Refused(f"it cannot be read ({type(error).__name__}: {error})") from error
    check(message, expect)
    return message


def dumps(packed: Packed) -> bytes:
    """Return one block of bytes for a transport: header (sizes), skeleton, buffers."""
    header = msgspec.msgpack.encode([len(packed.skeleton), *(b.nbytes for b in packed.buffers)])
    return b"".join([len(header).to_bytes(4, "little"), header, packed.skeleton,
                     *(b.data for b in packed.buffers)])


def loads(block: bytes | bytearray | memoryview, pool: Pool | None = None) -> Packed:
    """Return the message of :func:`dumps`, in writable memory of its own, fresh or from a pool.

    Raises :class:`FedvineError` for a block of another length than its header states.
    """
    view = memoryview(block)
    start = 4 + int.from_bytes(view[:4], "little")
    sizes = msgspec.msgpack.decode(view[4:start], type=list[int])
    # A million empty buffers or values take a megabyte here, and a hundred once they are read.
    if not sizes or sizes[0] > MOST_SKELETON or NAMED * (len(sizes) - 1) > sizes[0]:
        raise FedvineError("A message states more parts than it can name; refused.")
    if start + sum(sizes) != len(view) or min(sizes) < 0:
        raise FedvineError("A message came cut short or with bytes too many; refused.")
    parts = []
    for size in sizes:
        parts.append(np.frombuffer(view[start:start + size], np.uint8))
        start += size
    packed = Packed(parts[0].tobytes(), parts[1:])
    return pool.take(packed) if pool else Packed(packed.skeleton, [b.copy() for b in parts[1:]])


class Pool:
    """Memory for received messages, used again once no array refers to it.

    Fresh pages cost ten times the copy itself, so a receiver's copy goes into memory that an
    earlier message has left. Small messages are left to the allocator, which does the same.

    Args:
        keep: bound of unused memory, in bytes.
    """

    def __init__(self, keep: int = 1 << 30) -> None:
        self.keep, self._free, self._idle = keep, dict[int, list[bytearray]](), 0   # by size
        self._leased: dict[int, tuple[weakref.ref, bytearray]] = {}
        self._lock = threading.RLock()  # replies of several clients arrive at the same time

    def take(self, packed: Packed) -> Packed:
        """Return a private copy of ``packed``; its memory returns when its last array is gone."""
        total = sum(-(-b.nbytes // ALIGN) * ALIGN for b in packed.buffers)
        if not total:
            return Packed(packed.skeleton, [np.empty(0, np.uint8) for _ in packed.buffers])
        if total <= SMALL:
            return Packed(packed.skeleton, [b.copy() for b in packed.buffers])
        # ``lease`` is the base of every view: when it is deleted, no view is left.
        memory = self._find(total + ALIGN)
        lease = np.frombuffer(memory, np.uint8)
        watch = weakref.ref(lease, self._give_back)
        self._leased[id(watch)] = watch, memory
        start, copies = -lease.ctypes.data % ALIGN, []
        for buffer in packed.buffers:
            copies.append(lease[start:start + buffer.nbytes])
            np.copyto(copies[-1], buffer)
            start += -(-buffer.nbytes // ALIGN) * ALIGN
        return Packed(packed.skeleton, copies)

    def _find(self, size: int) -> bytearray:
        step = max(1 << max(size.bit_length() - 4, 0), 4096)    # at most an eighth too large
        size = -(-size // step) * step
        with self._lock:
            if size in self._free:
                self._idle -= size
                return self._taken(size)
        return bytearray(size)

    def _give_back(self, watch: weakref.ref) -> None:
        with self._lock:
            _, memory = self._leased.pop(id(watch))
            self._free.setdefault(len(memory), []).append(memory)
            self._idle += len(memory)
            while self._idle > self.keep:       # of the size that was first used longest ago
                size = next(iter(self._free))
                self._taken(size)
                self._idle -= size

    def _taken(self, size: int) -> bytearray:
        """Take an unused block out; a size without one is not kept."""
        found = self._free[size].pop()
        if not self._free[size]:
            del self._free[size]
        return found

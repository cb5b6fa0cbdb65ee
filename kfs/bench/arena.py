"""Shared memory of one child: slots for inputs and outputs, each between bands that nobody may touch."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kfs.bench.child import TensorSlot, tensor_view

if TYPE_CHECKING:
    import torch

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = _libc.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

CANARY_BYTES = 4096
_CANARY = bytes(range(1, 256)) * 17


class Arena:
    """Shared memory of one child, written and read by the judge through ``view``."""

    def __init__(self, nbytes: int):
        self.nbytes = max(nbytes, mmap.PAGESIZE)
        self.fd = os.memfd_create("kfs-arena")
        os.ftruncate(self.fd, self.nbytes)
        self.map = mmap.mmap(self.fd, self.nbytes)
        self._bytes = (ctypes.c_char * self.nbytes).from_buffer(self.map)
        self._address = ctypes.addressof(self._bytes)

    def view(self, slot: TensorSlot):
        """The tensor at ``slot``, sharing the arena's memory."""
        return tensor_view(self.map, slot)

    def put(self, slot: TensorSlot, tensor: torch.Tensor) -> None:
        """Write a contiguous tensor's values into ``slot``."""
        if slot.strides is not None:
            self.view(slot).copy_(tensor)
        else:
            _libc.memmove(self._address + slot.offset, tensor.data_ptr(), slot.nbytes)

    def poison(self, slot: TensorSlot) -> None:
        """Fill ``slot`` with 0xFF bytes (NaN, or -1), so that what was never written cannot pass for an answer."""
        _libc.memset(self._address + slot.offset, 0xFF, slot.nbytes)

    def holds(self, slot: TensorSlot, tensor: torch.Tensor) -> bool:
        """Whether the slot holds the tensor's values, byte for byte where both are contiguous."""
        if slot.strides is not None:
            return self.view(slot).equal(tensor)
        return not slot.nbytes or _libc.memcmp(self._address + slot.offset, tensor.data_ptr(), slot.nbytes) == 0

    def set_canaries(self, slots: Iterable[TensorSlot]) -> None:
        """Write a known pattern behind and before each slot."""
        for low, high in _bands(slots):
            self.map[low:high] = _CANARY[: high - low]

    def canary_fault(self, slots: Iterable[TensorSlot]) -> str | None:
        """Where something was written beside a slot; None if nowhere."""
        for low, high in _bands(slots):
            if self.map[low:high] != _CANARY[: high - low]:
                return "memory next to an input or output buffer was written"
        return None

    def close(self) -> None:
        """Free the memory once no view is left."""
        del self._bytes
        with contextlib.suppress(BufferError):
            self.map.close()
        os.close(self.fd)


def _bands(slots: Iterable[TensorSlot]) -> list[tuple[int, int]]:
    """Bytes beside each slot that nobody may touch."""
    return [
        band
        for s in slots
        for band in ((s.offset - CANARY_BYTES, s.offset), (s.offset + s.nbytes, s.offset + s.nbytes + CANARY_BYTES))
    ]

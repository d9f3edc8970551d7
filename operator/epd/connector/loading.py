"""Brings a local copy or a pin to the device of a worker, in its model thread. Decides nothing, releases nothing.

What is returned is done: no byte of the source is needed any more, so the scheduler may free it once the step is
accounted. A pin lies on the claim and is read, never mapped: a server that drops it would make a mapping SIGBUS. Local
copies never shrink, so a device that is not the processor itself takes its bytes out of a mapping, without a copy
between.
"""

# torch is not there when types are checked.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import mmap
import os
from typing import Final

import torch
from blake3 import blake3

from .holdings import Load

DTYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
"""What an encoder can put out, by torch's and by safetensors' names."""
TORCH_DTYPES: Final = {name: dtype for dtype, name in DTYPES.items()}

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_MAPPED: Final = 1 << 20
"""1 MiB: below, reading into memory that malloc has at hand costs less than a mapping and its page faults."""


def onto(device: torch.device, load: Load) -> torch.Tensor:
    """Return the tensor on a device. Raises OSError, EOFError, and ValueError for a pin that is not what was pinned."""
    fd = os.open(load.path, _FLAGS)
    try:
        tensor = torch.empty(0, dtype=TORCH_DTYPES[load.dtype])
        nbytes = load.rows * load.width * tensor.element_size()
        if device.type != "cpu" and load.checksum is None and nbytes >= _MAPPED:
            values = mapped(fd, load, nbytes)
        else:
            values = _read(fd, load, nbytes)
    finally:
        os.close(fd)
    return values.view(tensor.dtype).reshape(load.rows, load.width).to(device)


def mapped(fd: int, load: Load, nbytes: int) -> torch.Tensor:
    """Return the bytes of a local copy as they lie in shared memory, until the scheduler frees it."""
    if os.fstat(fd).st_size < load.offset + nbytes:
        raise EOFError(f"{load.path} is shorter than {nbytes} bytes")
    # Private, so that nothing in this process can change what other workers read; then MAP_POPULATE would copy it all.
    mapping = mmap.mmap(fd, load.offset + nbytes, flags=mmap.MAP_PRIVATE)
    return torch.frombuffer(mapping, dtype=torch.uint8, count=nbytes, offset=load.offset)


def _read(fd: int, load: Load, nbytes: int) -> torch.Tensor:
    # No huge pages: above 32 MiB they save a quarter of the processor time, but the kernel may compact memory in this
    # thread to make them, for as long as that takes.
    values = torch.empty(nbytes, dtype=torch.uint8)
    view, done = memoryview(values.numpy()), 0
    while done < nbytes:
        count = os.preadv(fd, [view[done:]], load.offset + done)
        if count <= 0:
            raise EOFError(f"{load.path} ends after {done} of {nbytes} bytes")
        done += count
    if load.checksum is not None and blake3(view).hexdigest() != load.checksum:
        raise ValueError(f"{load.path} is not what was pinned")
    return values

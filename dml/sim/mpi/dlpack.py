"""Memory of DLPack tensors, by the structures of the DLPack standard."""

import ctypes
from typing import Any

import numpy as np

from dml.sim.mpi.constants import left_out

PROCESSOR = (1, 3, 11)  # device types whose memory the processor reads
READ_ONLY = 1  # flag of a versioned tensor
CODES = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # of NumPy, by DLPack's


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = (
    ctypes.c_void_p,
    [ctypes.py_object, ctypes.c_char_p],
)
is_capsule = ctypes.pythonapi.PyCapsule_IsValid
is_capsule.restype, is_capsule.argtypes = (
    ctypes.c_int,
    [ctypes.py_object, ctypes.c_char_p],
)


def from_dlpack(data: Any) -> tuple[np.ndarray, str]:
    """Return the bytes of a tensor, and the code of its type.

    Raises:
      BufferError: The capsule is not valid, or the tensor not contiguous.
    """
    place, device = data.__dlpack_device__()
    if not (isinstance(place, int) and isinstance(device, int)):
        raise TypeError(f"expected a device of two integers, got {(place, device)}")
    if place not in PROCESSOR:
        raise left_out(f"a buffer of a GPU ({type(data).__name__})")
    try:
        capsule = data.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = data.__dlpack__()
    tensor, readonly = tensor_of(capsule)
    shape, width = checked(tensor), tensor.bits * tensor.lanes // 8
    nbytes = int(np.prod(shape, dtype=np.int64)) * width
    kind = "fc"[tensor.lanes == 2] if tensor.code == 2 else CODES.get(tensor.code, "")
    plain = kind and (tensor.lanes == 1 or kind == "c")
    code = np.dtype(f"{kind}{width}").char if plain else "B"  # else bytes
    if not nbytes:
        return np.zeros(0, np.uint8), code
    memory = (ctypes.c_ubyte * nbytes).from_address(tensor.data + tensor.byte_offset)
    memory.owner = data, capsule  # keep the memory
    array = np.frombuffer(memory, np.uint8)
    array.flags.writeable = not readonly
    return array, code


def tensor_of(capsule: Any) -> tuple[Tensor, bool]:
    """Return the tensor of a capsule, and whether it is read-only."""
    if is_capsule(capsule, b"dltensor_versioned"):
        found = Versioned.from_address(pointer_of(capsule, b"dltensor_versioned"))
        if found.major != 1:
            raise BufferError(f"expected version 1 of DLPack, got {found.major}")
        return found.tensor, bool(found.flags & READ_ONLY)
    if is_capsule(capsule, b"dltensor"):
        return Tensor.from_address(pointer_of(capsule, b"dltensor")), False
    raise BufferError("expected a capsule of DLPack that was not used, got another")


def checked(tensor: Tensor) -> list[int]:
    """Return the shape of a contiguous tensor."""
    ndim = tensor.ndim
    if ndim < 0 or ndim and not tensor.shape:
        raise BufferError(f"expected a shape of {ndim} axes, got none")
    shape = [tensor.shape[k] for k in range(ndim)]
    if any(side < 0 for side in shape):
        raise BufferError(f"expected a shape without negative sides, got {shape}")
    if tensor.strides and 0 not in shape:
        strides = [tensor.strides[k] for k in range(ndim)]
        axes = [k for k in range(ndim) if shape[k] != 1]
        if not (follows(shape, strides, axes[::-1]) or follows(shape, strides, axes)):
            raise BufferError(f"expected a contiguous tensor, got strides {strides}")
    return shape


def follows(shape: list[int], strides: list[int], axes: list[int]) -> bool:
    """Return whether the axes, the fastest first, have no gaps."""
    step = 1
    for axis in axes:
        if strides[axis] != step:
            return False
        step *= shape[axis]
    return True

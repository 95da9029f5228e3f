"""Constants of MPI, under mpi4py's names, and the class of its errors."""

import builtins
from collections.abc import Callable
from typing import Any

from dml.types import ANY, PROC_NULL, UNDEFINED
from dml.types.messages import TAG_UB as LARGEST_TAG

ERRORS = {  # by class: its number and text
    "SUCCESS": (0, "no error"),
    "ERR_BUFFER": (1, "invalid buffer"),
    "ERR_COUNT": (2, "invalid count"),
    "ERR_TYPE": (3, "invalid datatype"),
    "ERR_TAG": (4, "invalid tag"),
    "ERR_COMM": (5, "invalid communicator"),
    "ERR_RANK": (6, "invalid rank"),
    "ERR_ROOT": (7, "invalid root"),
    "ERR_GROUP": (8, "invalid group"),
    "ERR_OP": (9, "invalid operation"),
    "ERR_TOPOLOGY": (10, "invalid topology"),
    "ERR_DIMS": (11, "invalid dimensions"),
    "ERR_ARG": (12, "invalid argument"),
    "ERR_UNKNOWN": (13, "unknown error"),
    "ERR_TRUNCATE": (14, "message truncated"),
    "ERR_OTHER": (15, "another error"),
    "ERR_INTERN": (16, "internal error"),
    "ERR_IN_STATUS": (17, "the error is in the status"),
    "ERR_PENDING": (18, "pending request"),
    "ERR_REQUEST": (19, "invalid request"),
    "ERR_ACCESS": (20, "access denied"),
    "ERR_AMODE": (21, "invalid mode of a file"),
    "ERR_BAD_FILE": (22, "invalid file name"),
    "ERR_CONVERSION": (23, "error in a data conversion"),
    "ERR_DUP_DATAREP": (24, "a data representation of this name exists"),
    "ERR_FILE_EXISTS": (25, "the file exists"),
    "ERR_FILE_IN_USE": (26, "the file is in use"),
    "ERR_FILE": (27, "invalid file"),
    "ERR_INFO": (28, "invalid info"),
    "ERR_INFO_KEY": (29, "invalid key of an info"),
    "ERR_INFO_VALUE": (30, "invalid value of an info"),
    "ERR_INFO_NOKEY": (31, "no such key in the info"),
    "ERR_IO": (32, "error of input or output"),
    "ERR_NAME": (33, "invalid name of a service"),
    "ERR_NO_MEM": (34, "no memory"),
    "ERR_NOT_SAME": (35, "arguments differ between ranks"),
    "ERR_NO_SPACE": (36, "no space"),
    "ERR_NO_SUCH_FILE": (37, "no such file"),
    "ERR_PORT": (38, "invalid port"),
    "ERR_QUOTA": (39, "quota exceeded"),
    "ERR_READ_ONLY": (40, "read-only file"),
    "ERR_SERVICE": (41, "unknown service"),
    "ERR_SPAWN": (42, "no process started"),
    "ERR_UNSUPPORTED_DATAREP": (43, "unsupported data representation"),
    "ERR_UNSUPPORTED_OPERATION": (44, "unsupported operation"),
    "ERR_WIN": (45, "invalid window"),
    "ERR_BASE": (46, "invalid base"),
    "ERR_LOCKTYPE": (47, "invalid type of lock"),
    "ERR_KEYVAL": (48, "invalid keyval"),
    "ERR_RMA_CONFLICT": (49, "conflicting accesses of a window"),
    "ERR_RMA_SYNC": (50, "wrong synchronization of a window"),
    "ERR_SIZE": (51, "invalid size"),
    "ERR_DISP": (52, "invalid displacement"),
    "ERR_ASSERT": (53, "invalid assertion"),
    "ERR_RMA_RANGE": (55, "the target is not within the window"),
    "ERR_RMA_ATTACH": (56, "memory cannot be attached"),
    "ERR_RMA_SHARED": (57, "memory cannot be shared"),
    "ERR_RMA_FLAVOR": (58, "wrong flavor of a window"),
    "ERR_SESSION": (75, "invalid session"),
    "ERR_PROC_ABORTED": (76, "a process was aborted"),
    "ERR_VALUE_TOO_LARGE": (77, "the value is too large"),
    "ERR_ERRHANDLER": (80, "invalid error handler"),
    "ERR_REVOKED": (101, "the communicator was revoked"),
    "ERR_PROC_FAILED": (102, "a process has failed"),
    "ERR_PROC_FAILED_PENDING": (103, "pending, as a process has failed"),
    "ERR_ABI": (104, "error of the binary interface"),
    "ERR_LASTCODE": (1 << 20, "the largest code"),
}
NUMBERS = {name: number for name, (number, _) in ERRORS.items()}
TEXTS = {number: f"MPI_{name}: {text}" for name, (number, text) in ERRORS.items()}

CONSTANTS: dict[str, int] = {
    **NUMBERS,
    **{"ANY_SOURCE": ANY, "ANY_TAG": ANY, "PROC_NULL": PROC_NULL, "ROOT": -3},
    **{"UNDEFINED": UNDEFINED, "BSEND_OVERHEAD": 96, "KEYVAL_INVALID": 0},
    **{"IDENT": 0, "CONGRUENT": 1, "SIMILAR": 2, "UNEQUAL": 3},
    **{"GRAPH": 1, "CART": 2, "DIST_GRAPH": 3},
    **{"COMM_TYPE_SHARED": 1, "COMM_TYPE_HW_GUIDED": 2, "COMM_TYPE_HW_UNGUIDED": 3},
    **{"COMM_TYPE_RESOURCE_GUIDED": 4, "VERSION": 4, "SUBVERSION": 1},
    **{"THREAD_SINGLE": 0, "THREAD_FUNNELED": 1, "THREAD_SERIALIZED": 2},
    **{"THREAD_MULTIPLE": 3, "LOCK_EXCLUSIVE": 234, "LOCK_SHARED": 235},
    **{"MODE_CREATE": 1, "MODE_RDONLY": 2, "MODE_WRONLY": 4, "MODE_RDWR": 8},
    **{"MODE_DELETE_ON_CLOSE": 16, "MODE_UNIQUE_OPEN": 32, "MODE_EXCL": 64},
    **{"MODE_APPEND": 128, "MODE_SEQUENTIAL": 256, "MODE_NOCHECK": 1024},
    **{"MODE_NOSTORE": 2048, "MODE_NOPUT": 4096, "MODE_NOPRECEDE": 8192},
    **{"MODE_NOSUCCEED": 16384, "SEEK_SET": 600, "SEEK_CUR": 602, "SEEK_END": 604},
    **{"DISPLACEMENT_CURRENT": -54278278, "DISP_CUR": -54278278},
    **{"ORDER_C": 56, "ORDER_FORTRAN": 57, "ORDER_F": 57},
    **{"DISTRIBUTE_BLOCK": 121, "DISTRIBUTE_CYCLIC": 122, "DISTRIBUTE_NONE": 123},
    **{"DISTRIBUTE_DFLT_DARG": -49767},
    **{"TYPECLASS_REAL": 1, "TYPECLASS_INTEGER": 2, "TYPECLASS_COMPLEX": 3},
    **{"TYPECLASS_LOGICAL": 4},
    **{"MAX_PROCESSOR_NAME": 128, "MAX_ERROR_STRING": 512, "MAX_PORT_NAME": 1024},
    **{"MAX_INFO_KEY": 255, "MAX_INFO_VAL": 1024, "MAX_OBJECT_NAME": 128},
    **{"MAX_DATAREP_STRING": 128, "MAX_LIBRARY_VERSION_STRING": 8192},
    **{"MAX_PSET_NAME_LEN": 256, "MAX_STRINGTAG_LEN": 256},
    # keyvals of attributes
    **{"TAG_UB": 1, "IO": 2, "WTIME_IS_GLOBAL": 3, "UNIVERSE_SIZE": 4, "APPNUM": 5},
    **{"LASTUSEDCODE": 6, "HOST": 7, "WIN_BASE": 11, "WIN_SIZE": 12},
    **{"WIN_DISP_UNIT": 13, "WIN_CREATE_FLAVOR": 14, "WIN_FLAVOR": 14},
    **{"WIN_MODEL": 15, "WIN_FLAVOR_CREATE": 1, "WIN_FLAVOR_ALLOCATE": 2},
    **{"WIN_FLAVOR_DYNAMIC": 3, "WIN_FLAVOR_SHARED": 4},
    **{"WIN_SEPARATE": 1, "WIN_UNIFIED": 2},
    **{"F_STATUS_SIZE": 6, "F_SOURCE": 0, "F_TAG": 1, "F_ERROR": 2},
}
COMBINERS = (
    *("NAMED", "DUP", "CONTIGUOUS", "VECTOR", "HVECTOR", "INDEXED", "HINDEXED"),
    *("INDEXED_BLOCK", "HINDEXED_BLOCK", "STRUCT", "SUBARRAY", "DARRAY", "RESIZED"),
    *("F90_INTEGER", "F90_REAL", "F90_COMPLEX", "VALUE_INDEX"),
)
CONSTANTS |= {f"COMBINER_{name}": 1 + k for k, name in enumerate(COMBINERS)}
ATTRIBUTES = {  # of communicators, by keyval
    CONSTANTS["TAG_UB"]: LARGEST_TAG,
    CONSTANTS["IO"]: ANY,
    CONSTANTS["HOST"]: PROC_NULL,
    CONSTANTS["APPNUM"]: 0,
    CONSTANTS["WTIME_IS_GLOBAL"]: True,
    CONSTANTS["LASTUSEDCODE"]: CONSTANTS["ERR_LASTCODE"],
}


class Exception(RuntimeError):
    """An error of MPI: its class, and a text that names the call."""

    def __init__(self, ierr: int = 0, text: str = "", /):
        super().__init__(ierr, text)
        self.ob_ierr, self.text = int(ierr), text

    def Get_error_code(self) -> int:
        return self.ob_ierr

    def Get_error_class(self) -> int:
        return self.ob_ierr if self.ob_ierr in TEXTS else NUMBERS["ERR_UNKNOWN"]

    def Get_error_string(self) -> str:
        return TEXTS.get(self.Get_error_class(), "")

    error_code = property(Get_error_code)
    error_class = property(Get_error_class)
    error_string = property(Get_error_string)

    def __eq__(self, other: object) -> bool:
        return self.ob_ierr == (
            other.ob_ierr if isinstance(other, Exception) else other
        )

    def __hash__(self) -> int:
        return hash(self.ob_ierr)

    def __bool__(self) -> bool:
        return self.ob_ierr != 0

    def __int__(self) -> int:
        return self.ob_ierr

    def __str__(self) -> str:
        return f"{self.Get_error_string()}{'; ' if self.text else ''}{self.text}"


def error(name: str, text: str) -> Exception:
    """Return an error of a class such as ERR_RANK."""
    return Exception(NUMBERS[name], text)


def lacking(call: str) -> Callable[..., Any]:
    """Return a function that raises NotImplementedError with the name of a call."""

    def function(*arguments: Any, **options: Any) -> Any:
        raise left_out(call)

    function.__name__ = call.rpartition(".")[2]
    return function


def left_out(call: str) -> builtins.Exception:
    """Return the error of a call that virtual ranks lack."""
    return NotImplementedError(
        f"expected a call that virtual ranks have, got {call}; docs/virtual.md lists "
        "what is left out"
    )

"""A stub of vLLM's interface, written for these tests: modules, names and signatures that the adapter uses."""

import enum

from pydantic import Field  # noqa: F401  such packages are not there


class CUDAGraphMode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def of_decodes(self):
        return CUDAGraphMode(self.value[0]) if isinstance(self.value, tuple) else self

    def of_others(self):
        return CUDAGraphMode(self.value[1]) if isinstance(self.value, tuple) else self

    def __bool__(self):
        return self is not CUDAGraphMode.NONE

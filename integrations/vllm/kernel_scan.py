"""Keeps an engine on CPU alive in a process that loaded numba before it.

When vLLM 0.32 puts its CPU kernels in place it looks at every attribute of every loaded module,
and takes ``vars(value).get`` of whatever claims a ``__dict__``. llvmlite's library handle, which
numba loads, answers to any name with a foreign function, so the engine does not start. Our
learners are compiled with numba: whoever imported them first would meet that fault.
"""

from __future__ import annotations

import sys
from typing import Any

_HANDLE_MODULE = "llvmlite.binding.ffi"


def hide_numba_from_kernel_scan() -> bool:
    """Let vLLM's kernel scan pass over llvmlite's handle; return whether that was needed.

    Only the module that holds the handle is out of sight, and only during the scan, which imports
    nothing. Without numba loaded, or with an engine that has no such scan, nothing is touched.
    """
    if _HANDLE_MODULE not in sys.modules:
        return False
    try:
        from vllm.triton_utils import dispatcher

        scan = dispatcher._rebind_kernels
    except (ImportError, AttributeError):
        return False
    if getattr(scan, "_acclimate", False):
        return True

    def without_handle(*args: Any, **kwargs: Any) -> Any:
        handle = sys.modules.pop(_HANDLE_MODULE, None)
        try:
            return scan(*args, **kwargs)
        finally:
            if handle is not None:
                sys.modules[_HANDLE_MODULE] = handle

    without_handle._acclimate = True  # type: ignore[attr-defined]
    dispatcher._rebind_kernels = without_handle
    return True

"""An engine on CPU starts in a process that loaded numba first."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCAN = """
import acclimate.predictors.acceptance
from vllm.triton_utils import dispatcher
from acclimate.integrations.vllm.plugin import register
try:
    dispatcher._rebind_kernels([])
    print("scan is fine by itself")
except AttributeError:
    print("scan met the handle")
register(); register()
dispatcher._rebind_kernels([])
import sys
assert "llvmlite.binding.ffi" in sys.modules
print("scan passed")
"""


def test_the_kernel_scan_passes_over_numba() -> None:
    pytest.importorskip("vllm", reason="vllm is not installed")
    done = subprocess.run(
        [sys.executable, "-c", SCAN], capture_output=True, text=True, check=False, timeout=300
    )
    assert "scan passed" in done.stdout, done.stderr

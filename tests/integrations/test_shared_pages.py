"""Pages of several processes made one; what stays apart."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from acclimate.integrations.shared_pages import (
    Region,
    SharedPages,
    anonymous_ranges,
    grown,
    share,
)

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory can be shared on Linux only"
)
SIZE = 40 * mmap.PAGESIZE
CONTENT = np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8)


class Buffer:
    """Memory of this process with the test's content."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.values = np.frombuffer(self.memory, dtype=np.uint8)
        self.values[:] = CONTENT
        self.region = Region(int(self.values.ctypes.data), SIZE)

    def is_shared(self) -> bool:
        """Whether a file, not this process alone, has the first page."""
        at = self.region.address
        return not any(begin <= at < end for begin, end in anonymous_ranges())


@pytest.fixture
def pages() -> Iterator[SharedPages]:
    made = SharedPages()
    yield made
    made.close()


def test_equal_bytes_get_the_same_pages_and_later_writes_stay_apart(pages: SharedPages) -> None:
    first, second = Buffer(), Buffer()
    assert not first.is_shared()
    for buffer in (first, second):
        assert share([buffer.region], pages.path) == SIZE
        assert buffer.is_shared() and (buffer.values == CONTENT).all()
    first.values[7] += 1
    third = Buffer()
    assert share([third.region], pages.path) == SIZE
    assert (second.values == CONTENT).all() and (third.values == CONTENT).all()
    assert first.values[7] == CONTENT[7] + 1


def test_what_is_not_equal_or_not_known_is_left_alone(pages: SharedPages) -> None:
    first = [Buffer() for _ in range(3)]
    unknown = Region(0, SIZE)
    assert share([first[0].region, unknown, first[2].region], pages.path) == 2 * SIZE
    second = [Buffer() for _ in range(3)]
    second[0].values[-1] ^= 1
    assert share([buffer.region for buffer in second], pages.path) == SIZE
    assert [buffer.is_shared() for buffer in second] == [False, False, True]
    assert second[0].values[-1] == CONTENT[-1] ^ 1
    assert share([second[0].region], pages.path) == 0, "not as large as those of the first"
    assert share([], pages.path) == 0


def test_another_process_finds_the_file(pages: SharedPages) -> None:
    buffer = Buffer()
    share([buffer.region], pages.path)
    code = f"import sys; sys.stdout.buffer.write(open({pages.path!r}, 'rb').read())"
    read = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert read == CONTENT.tobytes()
    with pytest.raises(FileNotFoundError):
        share([buffer.region], "/proc/self/fd/99999")


def test_new_memory_is_noticed() -> None:
    before = anonymous_ranges()
    buffer = Buffer()
    new = grown(before, anonymous_ranges())
    assert any(begin <= buffer.region.address < end for begin, end in new)
    assert grown(before, before) == []
    assert grown([(0, 10)], [(2, 5)]) == [] and grown([], [(2, 5)]) == [(2, 5)]


@pytest.mark.parametrize("address", [1, mmap.PAGESIZE - 1, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 64])
def test_a_region_lies_within_and_has_one_size(address: int) -> None:
    size = 10 * mmap.PAGESIZE + 100
    region = Region.within(address, size)
    assert region.size == 9 * mmap.PAGESIZE and region.address % mmap.PAGESIZE == 0
    assert address <= region.address and region.address + region.size <= address + size
    assert Region.within(address, mmap.PAGESIZE // 2).size == 0

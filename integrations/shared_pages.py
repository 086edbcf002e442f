"""Lets processes that hold the same bytes in memory hold them in the same physical pages.

Where in the machine's memory a process happens to lie can change its speed by several per cent for
its whole life. Processes that are compared with each other should not differ in that.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import os
import sys
from collections.abc import Sequence

_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """Whole pages of this process's memory.

    Parameters
    ----------
    address, size
        Both multiples of the page size, in bytes. Address 0: this process does not know where it
        has these bytes.
    """

    address: int
    size: int

    @classmethod
    def within(cls, address: int, size: int) -> Region:
        """Return the whole pages among ``size`` bytes from an address on.

        As many for every address, so at times there is one more.

        >>> Region.within(1, 3 * mmap.PAGESIZE) == Region(mmap.PAGESIZE, 2 * mmap.PAGESIZE)
        True
        """
        pages = max(size // mmap.PAGESIZE - 1, 0)
        return cls(-(-address // mmap.PAGESIZE) * mmap.PAGESIZE, pages * mmap.PAGESIZE)


class SharedPages:
    """A file without a name in memory, for other processes of the same user to map.

    It vanishes with the last process that has it.

    Raises
    ------
    OSError
        The system has no such files; only Linux has.
    """

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("memory can be shared on Linux only")
        self._file = os.memfd_create("acclimate-shared-pages")

    @property
    def path(self) -> str:
        """Where other processes find it, as long as this one keeps it."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def close(self) -> None:
        """Let go of it; processes that map it keep what they map."""
        os.close(self._file)


def share(regions: Sequence[Region], path: str) -> int:
    """Put the pages of a file under regions of this process, and return how many bytes were.

    Nothing moves: a region keeps its addresses and its bytes. The first process writes its bytes to
    the file; a later one takes those regions from the file that hold the very same bytes, and keeps
    the others. Who writes to a region later gets a copy of the page, unseen by other processes.
    Nobody may write to a region during the call.

    Parameters
    ----------
    regions
        The same sizes in the same order in every process.
    path
        Of a `SharedPages`.

    Returns
    -------
    int
        0 if the regions are not as large together as those of the first process.

    Raises
    ------
    OSError
        The file cannot be opened, written or mapped.
    """
    total = sum(region.size for region in regions)
    file = os.open(path, os.O_RDWR)
    try:
        if not total or os.fstat(file).st_size not in (0, total):
            return 0
        if not os.fstat(file).st_size:
            _write(regions, file)
        shared = offset = 0
        with mmap.mmap(file, total, access=mmap.ACCESS_READ) as pages:
            begin = _address(pages)
            for region in regions:
                if region.address and _same(region, begin + offset):
                    _map(region, file, offset)
                    shared += region.size
                offset += region.size
        return shared
    finally:
        os.close(file)


def anonymous_ranges() -> list[tuple[int, int]]:
    """Return where this process has memory that is private, writable, and mapped for itself alone.

    Memory without a name, as large allocations get it; neither the heap nor stacks of programs.
    """
    ranges = []
    with open("/proc/self/maps", encoding="ascii", errors="replace") as lines:
        for line in lines:
            where, may, _, _, inode, *name = line.split(maxsplit=5)
            if may == "rw-p" and inode == "0" and not name:
                begin, end = where.split("-")
                ranges.append((int(begin, 16), int(end, 16)))
    return ranges


def grown(
    before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return what ``after`` has that ``before`` has not; both ascending and without overlaps.

    >>> grown([(10, 20), (30, 40)], [(5, 25), (30, 40), (50, 60)])
    [(5, 10), (20, 25), (50, 60)]
    """
    new = []
    for begin, end in after:
        for low, high in before:
            if high <= begin or low >= end:
                continue
            if low > begin:
                new.append((begin, low))
            begin = max(begin, high)
        if begin < end:
            new.append((begin, end))
    return new


def _write(regions: Sequence[Region], file: int) -> None:
    offset = 0
    os.ftruncate(file, sum(region.size for region in regions))
    for region in regions:
        os.lseek(file, offset, os.SEEK_SET)
        offset += region.size
        if not region.address:
            continue
        left = memoryview((ctypes.c_ubyte * region.size).from_address(region.address)).cast("B")
        while left:
            left = left[os.write(file, left) :]


def _address(pages: mmap.mmap) -> int:
    """Return where a read-only map lies; only numpy asks without wanting to write."""
    import numpy as np

    return int(np.frombuffer(pages, dtype=np.uint8).ctypes.data)


def _same(region: Region, address: int) -> bool:
    libc = ctypes.CDLL(None)
    size = ctypes.c_size_t(region.size)
    return not libc.memcmp(ctypes.c_void_p(region.address), ctypes.c_void_p(address), size)


def _map(region: Region, file: int, offset: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    got = libc.mmap(
        ctypes.c_void_p(region.address),
        ctypes.c_size_t(region.size),
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_PRIVATE | _MAP_FIXED,
        file,
        ctypes.c_long(offset),
    )
    if got == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"memory must be mapped again: {os.strerror(number)}")

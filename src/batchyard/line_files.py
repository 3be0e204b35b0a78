"""Lines of a large text file as a sequence that stays on the disk."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import BinaryIO, overload

#: A longer list of lines is better left on the disk.
MAX_BYTES_IN_MEMORY = 2**20
#: Lines are read in blocks of about this size. The index has two numbers for each of them.
_BLOCK_BYTES = 4096


class LineFile(Sequence[str]):
    """The lines of a UTF-8 file, which must not change as long as this object is in use.

    In memory are one block of lines and an index: 80 kB for a million lines of 20 bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        """``file`` is read from its beginning, and may be closed afterwards. Raises OSError."""
        #: Number of the first line of each block, and where the block begins.
        self._numbers, self._offsets = array("Q"), array("Q")
        count = offset = 0
        self._fd = os.dup(file.fileno())
        file.seek(0)
        while lines := file.readlines(_BLOCK_BYTES):
            self._numbers.append(count)
            self._offsets.append(offset)
            count += len(lines)
            offset += sum(map(len, lines))
        self._count = count
        self._offsets.append(offset)
        #: The block that was read last, and the number of its first line.
        self._block: list[str] = []
        self._first = 0

    def __del__(self) -> None:
        os.close(self._fd)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[position] for position in range(*number.indices(self._count))]
        if not -self._count <= number < self._count:
            raise IndexError(f"there is no line {number}, of {self._count}")
        number %= self._count
        if not self._first <= number < self._first + len(self._block):
            index = bisect_right(self._numbers, number) - 1
            self._block, self._first = self._read_block(index), self._numbers[index]
        return self._block[number - self._first]

    def __iter__(self) -> Iterator[str]:
        for index in range(len(self._numbers)):
            yield from self._read_block(index)

    def _read_block(self, index: int) -> list[str]:
        start, end = self._offsets[index : index + 2]
        text = os.pread(self._fd, end - start, start).decode("utf-8")
        # Not splitlines(): a line may have characters that it would take for line ends.
        return text.removesuffix("\n").split("\n")

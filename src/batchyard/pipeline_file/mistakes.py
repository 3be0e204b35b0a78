"""Collecting what is wrong in a file, to tell all of it at once. Knows places and words, not pipelines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from batchyard.errors import Mistake, PipelineFileError
from batchyard.units import quoted
from batchyard.yaml_positions import Place

#: Comparing words is slow (some 10 us a pair): of thousands of mistakes, the first get a suggestion.
_COMPARISONS = 10_000
_LONGEST_WORD = 80


WHOLE_FILE = Place(0, 0)


class Notes:
    """The mistakes and warnings found in one file; ``beside`` is for a further file of the same reading."""

    def __init__(self, path: str, _shared: _Shared | None = None) -> None:
        self.path = path
        self._shared = _shared or _Shared()

    @property
    def count(self) -> int:
        return len(self._shared.noted)

    def beside(self, path: str) -> Notes:
        return Notes(path, self._shared)

    def wrong(self, at: Place, what: str, instead: str = "") -> None:
        self._shared.noted.append(Mistake(self.path, at.line, at.column, what, instead))

    def warn(self, at: Place, what: str, instead: str = "") -> None:
        self._shared.noted.append(
            Mistake(self.path, at.line, at.column, what, instead, is_warning=True)
        )

    def did_you_mean(self, word: str, known: Collection[str], otherwise: str = "") -> str:
        nearest = self.nearest(word, known)
        return f"did you mean {quoted(nearest)}?" if nearest else otherwise

    def nearest(self, word: str, known: Collection[str], likeness: float = 0.6) -> str:
        """The known word that was probably meant, or nothing; ``likeness`` 1 is the very same."""
        asked = (word, id(known))
        if asked not in self._shared.answers:
            if len(word) > _LONGEST_WORD or len(known) > self._shared.comparisons_left:
                return ""
            self._shared.comparisons_left -= len(known)
            # Kept with what it was compared to, which then stays alive: an id is only good for so long.
            self._shared.answers[asked] = (_nearest(word, known, likeness), known)
        return self._shared.answers[asked][0]

    def settle(self) -> tuple[Mistake, ...]:
        """The warnings, in the file's order; raises everything noted where there is any mistake among it."""
        order = {self.path: 0}
        for mistake in self._shared.noted:
            order.setdefault(mistake.path, len(order))
        # An alias shows the same mistake once for each of its uses: dict.fromkeys keeps the first.
        noted = sorted(
            dict.fromkeys(self._shared.noted), key=lambda m: (order[m.path], m.line, m.column)
        )
        if any(not mistake.is_warning for mistake in noted):
            raise PipelineFileError(noted)
        return tuple(noted)


@dataclass(slots=True)
class _Shared:
    noted: list[Mistake] = field(default_factory=list)
    comparisons_left: int = _COMPARISONS
    answers: dict[tuple[str, int], tuple[str, Collection[str]]] = field(default_factory=dict)


def _nearest(word: str, known: Collection[str], likeness: float) -> str:
    import difflib  # slow to import, and most files have no mistakes

    # Without regard to case, since that is what people get wrong too.
    by_lower = {other.lower(): other for other in known if len(other) <= _LONGEST_WORD}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=likeness)
    return by_lower[found[0]] if found else ""


def place_in(text: str, offset: int) -> Place:
    """The place of a character, in lines that end with LF, CR LF or CR."""
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    return Place(before.count("\n") + 1, len(before) - before.rfind("\n"))

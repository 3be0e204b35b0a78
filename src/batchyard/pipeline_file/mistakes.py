"""Collect the mistakes in a pipeline file and the files it names, to report all of them at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from batchyard.errors import Mistake, PipelineFileError, Place
from batchyard.quick_dataclasses import dataclass
from batchyard.units import quote

#: A comparison of two words takes some 10 us. After this many, mistakes get no suggestion.
_MAX_COMPARISONS = 10_000
_MAX_WORD_LENGTH = 80

WHOLE_FILE = Place(0, 0)


class Mistakes:
    """The mistakes and warnings of one file, and of the files that are read with it."""

    def __init__(self, path: str, _shared: _Shared | None = None) -> None:
        self.path = path
        self._shared = _shared or _Shared()

    @property
    def count(self) -> int:
        """Number of mistakes and warnings in all files."""
        return len(self._shared.mistakes)

    def for_file(self, path: str) -> Mistakes:
        """Return the collection that adds to this one with the path of another file."""
        return Mistakes(path, self._shared)

    def add(self, at: Place, problem: str, suggestion: str = "") -> None:
        """Add a mistake: what is wrong at a place in the file, and what to write instead."""
        self._shared.mistakes.append(Mistake(self.path, at.line, at.column, problem, suggestion))

    def warn(self, at: Place, problem: str, suggestion: str = "") -> None:
        """Add a warning, which does not make the file invalid."""
        self._shared.mistakes.append(
            Mistake(self.path, at.line, at.column, problem, suggestion, is_warning=True)
        )

    def did_you_mean(self, word: str, valid_words: Collection[str], otherwise: str = "") -> str:
        """Return a suggestion with the nearest valid word, or ``otherwise`` if none is near."""
        nearest = self.nearest(word, valid_words)
        return f"did you mean {quote(nearest)}?" if nearest else otherwise

    def nearest(self, word: str, valid_words: Collection[str], likeness: float = 0.6) -> str:
        """Return the valid word that is most like ``word``, or "".

        ``likeness`` is the smallest accepted similarity; 1 stands for equal words.
        """
        shared = self._shared
        key = (word, id(valid_words))
        if key not in shared.nearest_words:
            if len(word) > _MAX_WORD_LENGTH or len(valid_words) > shared.comparisons_left:
                return ""
            shared.comparisons_left -= len(valid_words)
            # The entry keeps ``valid_words`` alive, so that no other object can get its id.
            shared.nearest_words[key] = (_nearest(word, valid_words, likeness), valid_words)
        return shared.nearest_words[key][0]

    def finish(self) -> tuple[Mistake, ...]:
        """Return the warnings in the order of the files and lines.

        Raises PipelineFileError with mistakes and warnings if there is at least one mistake.
        """
        file_order = {self.path: 0}
        for mistake in self._shared.mistakes:
            file_order.setdefault(mistake.path, len(file_order))
        # A mistake in an anchor is added once for each alias: dict.fromkeys removes the copies.
        ordered = sorted(
            dict.fromkeys(self._shared.mistakes),
            key=lambda mistake: (file_order[mistake.path], mistake.line, mistake.column),
        )
        if any(not mistake.is_warning for mistake in ordered):
            raise PipelineFileError(ordered)
        return tuple(ordered)


@dataclass(slots=True)
class _Shared:
    """What the collections of several files have in common."""

    mistakes: list[Mistake] = field(default_factory=list)
    comparisons_left: int = _MAX_COMPARISONS
    #: (word, id of the valid words) -> nearest word, the valid words
    nearest_words: dict[tuple[str, int], tuple[str, Collection[str]]] = field(default_factory=dict)


def _nearest(word: str, valid_words: Collection[str], likeness: float) -> str:
    import difflib  # slow to import, and most files have no mistakes

    # Case is ignored, since people also mistype it.
    by_lower_case = {
        valid.lower(): valid for valid in valid_words if len(valid) <= _MAX_WORD_LENGTH
    }
    matches = difflib.get_close_matches(word.lower(), by_lower_case, n=1, cutoff=likeness)
    return by_lower_case[matches[0]] if matches else ""


def place_in(text: str, offset: int) -> Place:
    """Return the place of a character. Lines end with LF, CR LF or CR."""
    preceding = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    return Place(preceding.count("\n") + 1, len(preceding) - preceding.rfind("\n"))

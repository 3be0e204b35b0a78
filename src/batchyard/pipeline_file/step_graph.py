"""What steps need of each other: the names are there, no circle closes, ``each`` child has a partner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from batchyard.pipeline_file.file_keys import NeedAt, StepDraft
from batchyard.pipeline_file.mistakes import Notes
from batchyard.units import quoted

_CYCLES_TOLD = 10  # the rest would be variations of them


def check(drafts: Sequence[StepDraft], notes: Notes) -> None:
    """Notes every mistake among the steps' names and needs."""
    by_name = _by_name(drafts, notes)
    edges: dict[str, list[NeedAt]] = {name: [] for name in by_name}
    for draft in drafts:
        seen: set[str] = set()
        for edge in draft.values.get("needs", ()):
            needed = edge.need.step
            if needed not in by_name:
                _note_missing(draft, edge, by_name, notes)
            elif needed in seen:
                what = f"step {quoted(draft.name)} needs {quoted(needed)} twice"
                notes.wrong(edge.node, what, "keep one of them")
            elif needed == draft.name:
                notes.wrong(edge.node, f"step {quoted(needed)} needs itself", "remove it")
            else:
                _check_each(draft, by_name[needed], edge, notes)
                if by_name.get(draft.name) is draft:
                    edges[draft.name].append(edge)
            seen.add(needed)
    for number, cycle in enumerate(_cycles(edges), 1):
        names = [cycle[-1].need.step, *(edge.need.step for edge in cycle)]
        notes.wrong(
            cycle[0].node,
            "the steps need each other in a cycle: " + " -> ".join(names),
            "remove one of these needs",
        )
        if number == _CYCLES_TOLD:
            break


def size_of(draft: StepDraft) -> int | None:
    """Number of children; None where the file's number is wrong, and has been noted."""
    size: int | None = draft.values.get("array")
    return 1 if size is None and "array" not in draft.node.entries else size


def _by_name(drafts: Sequence[StepDraft], notes: Notes) -> dict[str, StepDraft]:
    by_name: dict[str, StepDraft] = {}
    for draft in drafts:
        if not draft.name:
            continue
        first = by_name.setdefault(draft.name, draft)
        if first is not draft:
            line = first.node_of("name").line
            what = f"a second step named {quoted(draft.name)}: the first is at line {line}"
            notes.wrong(draft.node_of("name"), what, "give each step a name of its own")
    return by_name


def _note_missing(
    draft: StepDraft, edge: NeedAt, by_name: Mapping[str, StepDraft], notes: Notes
) -> None:
    nearest = notes.nearest(edge.need.step, by_name)
    instead = "write the name of another step"
    if nearest and nearest != draft.name:
        instead = f"did you mean {quoted(nearest)}?"
    elif 1 < len(by_name) <= 20:
        instead = "the other steps are " + ", ".join(name for name in by_name if name != draft.name)
    notes.wrong(edge.node, f"there is no step {quoted(edge.need.step)}", instead)


def _check_each(draft: StepDraft, needed: StepDraft, edge: NeedAt, notes: Notes) -> None:
    ours, theirs = size_of(draft), size_of(needed)
    if edge.need.each and ours and theirs and ours != theirs:
        what = (
            f"each: child i of {quoted(draft.name)} would wait for child i of {quoted(needed.name)},"
            f" but they have {ours:,} and {theirs:,} children"
        )
        notes.wrong(edge.node, what, "give both the same array, or remove each")


def _cycles(edges: Mapping[str, Sequence[NeedAt]]) -> Iterator[list[NeedAt]]:
    """Circles as their needs in order, no step in two of them; depth first with a stack of our own, since a
    chain of thousands of steps is deeper than Python's."""
    done: set[str] = set()
    told: set[str] = set()
    for root in edges:
        if root in done:
            continue
        on_path = {root: 0}
        path: list[NeedAt] = []
        stack = [iter(edges[root])]
        while stack:
            edge = next(stack[-1], None)
            if edge is None:
                stack.pop()
                done.add(path.pop().need.step if path else root)
                on_path.popitem()
                continue
            name = edge.need.step
            if name in on_path and name not in told:
                cycle = [*path[on_path[name] :], edge]
                if told.isdisjoint(step.need.step for step in cycle):
                    told.update(step.need.step for step in cycle)
                    yield cycle
            elif name not in on_path and name not in done:
                path.append(edge)
                on_path[name] = len(path)
                stack.append(iter(edges[name]))

"""Check the ``needs`` of steps: the names exist, there is no cycle, array sizes fit ``each``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from batchyard.pipeline_file.file_keys import NeedAt, StepDraft
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.shard import DYNAMIC
from batchyard.units import quote

#: Further cycles are mostly variations of the first ones.
_MAX_CYCLES = 10


def check(drafts: Sequence[StepDraft], mistakes: Mistakes) -> None:
    """Add every mistake in the steps' names and needs."""
    by_name = _by_name(drafts, mistakes)
    edges: dict[str, list[NeedAt]] = {name: [] for name in by_name}
    for draft in drafts:
        valid_needs = _valid_needs(draft, by_name, mistakes)
        if by_name.get(draft.name) is draft:
            edges[draft.name] = valid_needs
    for cycle in islice(_cycles(edges), _MAX_CYCLES):
        names = [cycle[-1].need.step, *(edge.need.step for edge in cycle)]
        mistakes.add(
            cycle[0].node,
            "the steps need each other in a cycle: " + " -> ".join(names),
            "remove one of these needs",
        )


def size_of(draft: StepDraft) -> int | None:
    """Return the number of children, or None if the file has an invalid number."""
    size: int | None = draft.values.get("array")
    return 1 if size is None and "array" not in draft.node.entries else size


def _by_name(drafts: Sequence[StepDraft], mistakes: Mistakes) -> dict[str, StepDraft]:
    """Return name -> the first step of that name; add a mistake for every further one."""
    by_name: dict[str, StepDraft] = {}
    for draft in drafts:
        if not draft.name:
            continue
        first = by_name.setdefault(draft.name, draft)
        if first is not draft:
            line = first.node_of("name").line
            problem = f"a second step named {quote(draft.name)}: the first is at line {line}"
            mistakes.add(draft.node_of("name"), problem, "give each step a name of its own")
    return by_name


def _valid_needs(
    draft: StepDraft, by_name: Mapping[str, StepDraft], mistakes: Mistakes
) -> list[NeedAt]:
    """Return the needs of the step that name another step; add a mistake for each other one."""
    needs: dict[str, NeedAt] = {}
    seen: set[str] = set()
    for edge in draft.values.get("needs", ()):
        needed = edge.need.step
        if needed not in by_name:
            _add_unknown_step(draft, edge, by_name, mistakes)
        elif needed in seen:
            problem = f"step {quote(draft.name)} needs {quote(needed)} twice"
            mistakes.add(edge.node, problem, "keep one of them")
        elif needed == draft.name:
            mistakes.add(edge.node, f"step {quote(needed)} needs itself", "remove it")
        else:
            _check_each(draft, by_name[needed], edge, mistakes)
            needs[needed] = edge
        seen.add(needed)
    return list(needs.values())


def _add_unknown_step(
    draft: StepDraft, edge: NeedAt, by_name: Mapping[str, StepDraft], mistakes: Mistakes
) -> None:
    nearest = mistakes.nearest(edge.need.step, by_name)
    suggestion = "write the name of another step"
    if nearest and nearest != draft.name:
        suggestion = f"did you mean {quote(nearest)}?"
    elif 1 < len(by_name) <= 20:
        names = ", ".join(name for name in by_name if name != draft.name)
        suggestion = f"the other steps are {names}"
    mistakes.add(edge.node, f"there is no step {quote(edge.need.step)}", suggestion)


def _check_each(draft: StepDraft, needed: StepDraft, edge: NeedAt, mistakes: Mistakes) -> None:
    size, needed_size = size_of(draft), size_of(needed)
    dynamic = [d.name for d in (draft, needed) if d.values.get("share_out") == DYNAMIC]
    if edge.need.each and dynamic:
        problem = (
            f"each: step {quote(dynamic[0])} is dynamic,"
            " so that nobody knows which child runs which command"
        )
        mistakes.add(edge.node, problem, "remove each, or share_out: dynamic")
    elif edge.need.each and size and needed_size and size != needed_size:
        problem = (
            f"each: child i of {quote(draft.name)} would wait for"
            f" child i of {quote(needed.name)},"
            f" but they have {size:,} and {needed_size:,} children"
        )
        mistakes.add(edge.node, problem, "give both the same array, or remove each")


def _cycles(edges: Mapping[str, Sequence[NeedAt]]) -> Iterator[list[NeedAt]]:
    """Yield cycles as their needs in order; no step is in two of them."""
    visited: set[str] = set()
    reported: set[str] = set()
    for root in edges:
        if root not in visited:
            for cycle in _cycles_from(root, edges, visited, reported):
                reported.update(edge.need.step for edge in cycle)
                yield cycle


def _cycles_from(
    root: str, edges: Mapping[str, Sequence[NeedAt]], visited: set[str], reported: set[str]
) -> Iterator[list[NeedAt]]:
    """Yield the cycles that are reached from ``root``, without a step in ``reported``.

    The search is depth first with a stack of its own: a chain of thousands of steps is deeper than
    Python's stack.
    """
    #: step on the current path -> number of edges before it
    depths = {root: 0}
    path: list[NeedAt] = []
    stack = [iter(edges[root])]
    while stack:
        edge = next(stack[-1], None)
        if edge is None:
            stack.pop()
            visited.add(path.pop().need.step if path else root)
            depths.popitem()
            continue
        name = edge.need.step
        if name in depths:
            cycle = [*path[depths[name] :], edge]
            if reported.isdisjoint(needed.need.step for needed in cycle):
                yield cycle
        elif name not in visited:
            path.append(edge)
            depths[name] = len(path)
            stack.append(iter(edges[name]))

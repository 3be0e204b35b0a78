"""Parse the YAML of a pipeline file and note every problem of it as a mistake."""

from __future__ import annotations

import re

from batchyard import yaml_positions
from batchyard.pipeline_file import yaml_problems
from batchyard.pipeline_file.mistakes import WHOLE_FILE, Notes, place_in
from batchyard.yaml_positions import Node

#: Characters that YAML forbids. libyaml names no line for them, so they are searched for first.
_NOT_PRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|\ufffe|\uffff")


def parse(text: str, notes: Notes) -> Node | None:
    """Return the document in ``text``, or None if it is empty.

    None is also returned, and a mistake noted, if the text cannot be read.
    """
    import yaml

    bad = _NOT_PRINTABLE.search(text)
    if bad:
        name = "a NUL byte" if bad[0] == "\0" else f"the control character U+{ord(bad[0]):04X}"
        notes.wrong(place_in(text, bad.start()), f"{name} in the file", "remove it")
        return None
    document = yaml_positions.parse(text)
    for problem in document.problems:
        notes.wrong(problem.at, problem.what, problem.instead)
        if problem.is_fatal:
            return None
    if isinstance(document.error, yaml.MarkedYAMLError):
        yaml_problems.explain(document.error, text, document.open_brackets, notes)
        return None
    if document.error:
        notes.wrong(WHOLE_FILE, f"not YAML: {document.error}")
        return None
    return document.root

"""Draw architecture.svg from the text PICTURE.

`python docs/images/architecture.py` writes the SVG file beside this script. The lines of PICTURE:

    box X Y WIDTH HEIGHT KIND | title | line | line    KIND is one of KINDS
    arrow X,Y X,Y ... | label                          the label is beside the first segment
    both X,Y X,Y ... | label                           an arrow with two heads

A line that begins with `|` continues the line before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 1080, 690

PICTURE = """
box  24  24 280  74 given | pipeline.yaml | or a plain list of commands, | or a Python program
box 330  24 280  74 ours  | the plan
                          | jobs, arrays, needs, retry rules; | all decided before anything runs
box 636  24 420  74 ours  | status, logs, stop, retry, resume, report
                          | from any terminal; for AWS from any machine, | by the run's record

box  24 140 1032 40 seam  | one contract for engines: submit, describe, attempts, stop, logs

box  24 224 280  92 ours  | the embedded engine
                          | AWS Batch's rules as a pure core; | SQLite; processes or containers;
                          | GPUs by number
box 330 224 280  92 ours  | batchyard emulate
                          | AWS Batch's API on localhost, | with S3, logs, IAM and the rest
                          | by moto
box 636 224 420  92 ours  | the AWS engine
                          | job definitions by the hash of their content;
                          | the whole plan submitted at once; | intent noted before each submission

box  24 372 280  74 run   | children on this machine | sh -c, or a container, | on its CPUs and GPUs
box 330 372 280  74 given | other clients | the aws command, boto3, | Snakemake, redun, Metaflow

box 636 360 420 306 cloud | an AWS account
box 656 396 184  92 aws   | AWS Batch
                          | CPU and GPU queues, | spot and on-demand; | arrays, dependencies
box 866 396 174  92 aws   | S3 | lists, files, | success records, | the run's record
box 656 544 184 102 run   | worker
                          | in each container: | its commands, inputs, | outputs, checkpoint
box 866 544 174  44 aws   | CloudWatch Logs
box 866 602 174  44 aws   | ECR: images

box  24 470 586 196 frame | beside the runs
box  40 508 178 142 ours  | images
                          | recipes: CPU, CUDA, | OpenCL; build, push; | runs pinned to the | digest
box 228 508 178 142 ours  | stacks
                          | CloudFormation: | network, storage, | registry, roles,
                          | queues and nodes
box 416 508 178 142 ours  | doctor
                          | why a job is stuck, | what is wrong with | user data, templates
                          | and nodes

arrow 304,61 330,61
arrow 470,98 470,140
both  846,98 846,140
arrow 164,180 164,224
arrow 846,180 846,224
arrow 636,270 610,270
arrow 330,270 304,270
arrow 164,316 164,372
arrow 470,372 470,316
arrow 748,316 748,396 | SubmitJob
arrow 953,316 953,396 | lists, inputs
arrow 748,488 748,544
both  840,558 853,558 853,470 866,470
arrow 840,576 866,576
arrow 866,624 840,624
arrow 610,583 636,583
"""

STYLE = """
svg { --page: #ffffff; --ink: #1b2430; --soft: #55606e; --line: #8a95a3; }
.page { fill: var(--page); }
text { fill: var(--ink); }
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.title { font-size: 15px; font-weight: 600; }
.line, .label { font-size: 13px; fill: var(--soft); }
.label { font-size: 12px; }
rect.box { stroke-width: 1.5; }
.given rect { fill: #f4f5f7; stroke: #8a95a3; }
.ours rect { fill: #e8f0fc; stroke: #3f74c4; }
.seam rect { fill: #3f74c4; stroke: #3f74c4; }
.seam text { fill: #ffffff; }
.run rect { fill: #e6f5ea; stroke: #3b9158; }
.aws rect { fill: #fdf1e0; stroke: #c98a2b; }
.cloud rect { fill: none; stroke: #c98a2b; stroke-dasharray: 6 5; }
.frame rect { fill: none; stroke: var(--line); stroke-dasharray: 6 5; }
.arrow { fill: none; stroke: var(--line); stroke-width: 1.8; }
.head { fill: var(--line); }
@media (prefers-color-scheme: dark) {
  svg { --page: #11161d; --ink: #e8edf3; --soft: #aab4c0; --line: #7d8998; }
  .given rect { fill: #1d242d; stroke: #6b7786; }
  .ours rect { fill: #172740; stroke: #5b8fdc; }
  .seam rect { fill: #2f5fa8; stroke: #2f5fa8; }
  .run rect { fill: #14301f; stroke: #4fae70; }
  .aws rect { fill: #33260f; stroke: #d49a3f; }
  .cloud rect { fill: none; stroke: #d49a3f; }
}
"""

#: Width of a letter as a share of the font size, estimated for wide fonts.
LETTER = 0.59
TITLE_PX, LINE_PX = 15, 13
FRAMES = ("cloud", "frame")
KINDS = ("given", "ours", "seam", "run", "aws", *FRAMES)


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    kind: str
    texts: tuple[str, ...]

    @property
    def right(self) -> int:
        return self.x + self.width

    @property
    def bottom(self) -> int:
        return self.y + self.height


@dataclass(frozen=True)
class Arrow:
    points: tuple[tuple[int, int], ...]
    label: str
    has_two_heads: bool


def parse_picture(picture: str) -> tuple[list[Box], list[Arrow]]:
    boxes, arrows = [], []
    for line in filter(None, re.sub(r"\n +\|", " |", picture).splitlines()):
        head, *texts = (part.strip() for part in line.split("|"))
        word, *values = head.split()
        if word == "box":
            *numbers, kind = values
            boxes.append(Box(*map(int, numbers), kind, tuple(texts)))
        else:
            points = tuple((int(x), int(y)) for x, y in (value.split(",") for value in values))
            arrows.append(Arrow(points, texts[0] if texts else "", word == "both"))
    return boxes, arrows


def find_problems(boxes: list[Box]) -> list[str]:
    """Return a sentence for each box that would look bad.

    A box looks bad if its text does not fit, or if it crosses the edge or another box.
    """
    problems = []
    for number, box in enumerate(boxes):
        name = box.texts[0]
        if box.kind not in KINDS:
            problems.append(f"{name}: there is no kind {box.kind}")
        if box.x < 0 or box.y < 0 or box.right > WIDTH or box.bottom > HEIGHT:
            problems.append(f"{name}: over the edge")
        problems += _find_text_problems(box)
        problems += [
            f"{name}: over {other.texts[0]}"
            for other in boxes[:number]
            if _overlap(box, other) and not (other.kind in FRAMES and _contains(other, box))
        ]
    return problems


def _find_text_problems(box: Box) -> list[str]:
    name = box.texts[0]
    sizes_px = (TITLE_PX, *[LINE_PX] * (len(box.texts) - 1))
    problems = [
        f"{name}: {text!r} is too long"
        for text, size_px in zip(box.texts, sizes_px, strict=True)
        if len(text) * size_px * LETTER > box.width - 16
    ]
    if _text_height(box) > box.height - 8:
        problems.append(f"{name}: too many lines")
    return problems


def _overlap(first: Box, second: Box) -> bool:
    return (
        first.x < second.right
        and second.x < first.right
        and first.y < second.bottom
        and second.y < first.bottom
    )


def _contains(frame: Box, box: Box) -> bool:
    return (
        frame.x <= box.x
        and box.right <= frame.right
        and frame.y <= box.y
        and box.bottom <= frame.bottom
    )


def _text_height(box: Box) -> int:
    return 20 + 18 * (len(box.texts) - 1)


def draw_box(box: Box) -> str:
    """Return the SVG element of a box with its texts."""
    middle = box.x + box.width / 2
    # The title of a frame is at its top; the texts of other boxes are in the middle.
    top = box.y + 8 if box.kind in FRAMES else box.y + (box.height - _text_height(box)) / 2
    place = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
    lines = [f'<rect class="box" {place} rx="8"/>']
    for number, text in enumerate(box.texts):
        kind = "line" if number else "title"
        place = f'x="{middle:g}" y="{top + 15 + 18 * number:g}"'
        lines.append(f'<text class="{kind}" {place} text-anchor="middle">{escape(text)}</text>')
    return f'<g class="{box.kind}">' + "".join(lines) + "</g>"


def draw_arrow(arrow: Arrow) -> str:
    """Return the SVG elements of an arrow and its label."""
    points = " ".join(f"{x},{y}" for x, y in arrow.points)
    start = ' marker-start="url(#head)"' if arrow.has_two_heads else ""
    text = f'<polyline class="arrow" points="{points}"{start} marker-end="url(#head)"/>'
    if arrow.label:
        (x1, y1), (x2, y2) = arrow.points[:2]
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        text += f'<text class="label" x="{x + 10:g}" y="{y - 14:g}">{escape(arrow.label)}</text>'
    return text


def render_svg() -> str:
    """Return the whole picture. Raises SystemExit, with the problems, if it would look bad."""
    boxes, arrows = parse_picture(PICTURE)
    problems = find_problems(boxes)
    if problems:
        raise SystemExit("\n".join(problems))
    label = "A pipeline becomes a plan, which one of two engines runs: here, or on AWS Batch"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">',
            "<!-- made by architecture.py -->",
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="8" markerHeight="8" orient="auto-start-reverse" '
            'markerUnits="userSpaceOnUse"><path class="head" d="M0,0 L8,4 L0,8 z"/>'
            "</marker></defs>",
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
            *map(draw_box, boxes),
            *map(draw_arrow, arrows),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(render_svg(), encoding="utf-8")

"""The command line: `python -m recon STEP`. Each step reads files, calls one module, writes files.

Exit code 2 means that the input is wrong, so a retry would fail in the same way.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import arrays, backproject, centre, correct, detector, files, ramp
from .scan import InputError, Scan, part_range

#: Attenuation shown as black and as white in pictures, in 1/cm. Bone is brighter than white, so
#: that soft tissue has more contrast.
GREY_RANGE_PER_CM = (-0.05, 0.55)


def simulate(work: files.Work, args: argparse.Namespace) -> str:
    scan = Scan(args.size, args.slices, args.angles)
    raw = detector.simulate(scan, args.shift_px, args.photons, args.seed)
    for kind in ("dark", "flat", "projections"):
        files.write_array(work.raw(kind), getattr(raw, kind))
    files.write_json(work.truth, {"shift_px": args.shift_px, "bad_pixels": int(raw.bad.sum())})
    files.write_json(work.scan, dataclasses.asdict(scan))
    frame = f"{scan.slices} x {scan.size} px"
    return f"{scan.angles} projections of {frame}, {int(raw.bad.sum())} bad pixels"


def preprocess(work: files.Work, args: argparse.Namespace) -> str:
    turns = part_range(_scan(work).angles, *args.part)
    dark, flat = files.read_array(work.raw("dark")), files.read_array(work.raw("flat"))
    counts = files.read_array(work.raw("projections"))[turns.start : turns.stop]
    for turn, integrals in zip(turns, correct.line_integrals(counts, dark, flat), strict=True):
        files.write_array(work.corrected(turn), integrals)
    bad = int(correct.find_bad_pixels(dark, flat).sum())
    return f"{len(turns)} projections corrected, {bad} bad pixels repaired"


def filter_sinograms(work: files.Work, args: argparse.Namespace) -> str:
    scan = _scan(work)
    numbers = part_range(scan.slices, *args.part)
    rows = slice(numbers.start, numbers.stop)
    projections = (files.read_array(work.corrected(turn)) for turn in range(scan.angles))
    sinograms = np.stack([projection[rows] for projection in projections], axis=1)
    for number, filtered in zip(numbers, ramp.apply(sinograms), strict=True):
        files.write_array(work.filtered(number), filtered)
    return f"{len(numbers)} sinograms filtered"


def calibrate(work: files.Work, args: argparse.Namespace) -> str:
    scan = _scan(work)
    integrals = np.stack([files.read_array(work.corrected(turn)) for turn in range(scan.angles)])
    axis = centre.find(integrals, scan.angles_rad)
    shift_px = axis.centre_px - scan.middle_px
    files.write_json(work.centre, {**dataclasses.asdict(axis), "shift_px": shift_px})
    return f"rotation axis at {axis.centre_px:.3f} px, {shift_px:+.3f} px off the middle"


def reconstruct(work: files.Work, args: argparse.Namespace) -> str:
    scan, xp = _scan(work), arrays.choose()
    numbers = part_range(scan.slices, *args.part)
    if not numbers:
        return "no slices in this part"
    sinograms = np.stack([files.read_array(work.filtered(number)) for number in numbers])
    centre_px = files.read_json(work.centre)["centre_px"]
    for number, values in zip(
        numbers, backproject.backproject(xp, sinograms, scan, centre_px), strict=True
    ):
        files.write_array(work.slice_values(number), values)
        files.write_bytes(work.slice_picture(number), files.grey_png(values, *GREY_RANGE_PER_CM))
    return f"slices {numbers.start} to {numbers.stop - 1} reconstructed with {xp.name}"


def figure(work: files.Work, args: argparse.Namespace) -> str:
    from . import figure as drawing  # matplotlib is slow to import; only this step needs it

    summary = drawing.draw(work, _scan(work), GREY_RANGE_PER_CM)
    return f"RMSE {summary['rmse_per_cm']:.4f} per cm; see {work.figure}"


STEPS = {
    "simulate": simulate,
    "preprocess": preprocess,
    "filter": filter_sinograms,
    "calibrate": calibrate,
    "reconstruct": reconstruct,
    "figure": figure,
}
IN_PARTS = ("preprocess", "filter", "reconstruct")


def _scan(work: files.Work) -> Scan:
    return Scan(**files.read_json(work.scan))


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part such as 3/32")
    return int(part), int(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="recon", description="A small tomography, step by step.")
    parser.add_argument(
        "--work", type=Path, default=Path("work"), help="folder of all files (default: work)"
    )
    steps = parser.add_subparsers(dest="step", required=True)
    for name in STEPS:
        step = steps.add_parser(name)
        if name in IN_PARTS:
            step.add_argument(
                "--part", type=_part, default=(1, 1), metavar="I/N", help="do part I of N only"
            )
        if name == "simulate":
            _add_scan_options(step)
    return parser


def _add_scan_options(step: argparse.ArgumentParser) -> None:
    for flag, kind, default, meaning in (
        ("--size", int, 256, "detector columns and slice width, px"),
        ("--slices", int, 64, "detector rows"),
        ("--angles", int, 360, "projections over a half turn"),
        (
            "--shift-px",
            float,
            3.7,
            "distance of the axis to the right of the detector's middle, px",
        ),
        ("--photons", float, 20000.0, "photons per pixel and projection, at the beam's brightest"),
        ("--seed", int, 7, "seed of the random noise and bad pixels"),
    ):
        step.add_argument(flag, type=kind, default=default, help=f"{meaning} (default: {default})")


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        message = STEPS[args.step](files.Work(args.work), args)
    except InputError as error:
        print(f"recon {args.step}: {error}", file=sys.stderr)
        return 2
    print(f"{args.step}: {message}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The last step: compare the slices with the phantom, in numbers and in one picture."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import imread

from . import arrays, files
from .backproject import backproject
from .phantom import draw_mask, draw_slice
from .scan import Scan

WIDTH_IN, HEIGHT_IN, DPI = 10.0, 8.3, 140  # 1400 px wide
ERROR_RANGE_PER_CM = 0.12
STRIP = 8  # number of slices in the row of small pictures
BLUE, RED, GREY = "#1f5fa8", "#c8402f", "#9aa0a8"


@dataclass(frozen=True, slots=True)
class Shown:
    """The slice that the large pictures show."""

    number: int
    truth: np.ndarray
    slice: np.ndarray
    uncalibrated: np.ndarray  # the same slice, reconstructed with the axis in the middle
    profile_row: int  # crosses the three small bodies near the bottom


def draw(work: files.Work, scan: Scan, grey_range_per_cm: tuple[float, float]) -> dict[str, Any]:
    """Write the picture and the numbers to files. Return the numbers."""
    shown = _shown(work, scan)
    numbers = _numbers(work, scan, shown)
    picture = _picture(work, scan, shown, numbers, grey_range_per_cm)
    content = io.BytesIO()
    # Without the version of matplotlib in the file, the bytes are the same for every version.
    picture.savefig(content, dpi=DPI, metadata={"Software": None})
    files.write_bytes(work.figure, content.getvalue())
    files.write_json(work.summary, numbers)
    return numbers


def _shown(work: files.Work, scan: Scan) -> Shown:
    number = scan.slices // 2
    truth = draw_slice(scan.size, float(scan.heights[number]))
    values = np.asarray(files.read_array(work.slice_values(number)))
    sinogram = np.asarray(files.read_array(work.filtered(number)))
    uncalibrated = backproject(arrays.on_numpy(), sinogram[None], scan, scan.middle_px)[0]
    return Shown(number, truth, values, uncalibrated, profile_row=int(0.8 * scan.size))


def _numbers(work: files.Work, scan: Scan, shown: Shown) -> dict[str, Any]:
    """Compute the errors inside the object; the air around it would make them look smaller."""
    whole, soft, per_slice = [], [], []
    for number, height in enumerate(scan.heights.tolist()):
        squares = (files.read_array(work.slice_values(number)) - draw_slice(scan.size, height)) ** 2
        whole.append(squares[draw_mask(scan.size, height, body=0)])
        soft.append(squares[draw_mask(scan.size, height, body=1)])
        per_slice.append(_root_mean(whole[-1]))
    outline = draw_mask(scan.size, float(scan.heights[shown.number]), body=0)
    true_shift_px = files.read_json(work.truth)["shift_px"]
    found_shift_px = files.read_json(work.centre)["shift_px"]
    return {
        "true_shift_px": true_shift_px,
        "found_shift_px": found_shift_px,
        "shift_error_px": found_shift_px - true_shift_px,
        "rmse_per_cm": _root_mean(np.concatenate(whole)),
        "rmse_inside_skull_per_cm": _root_mean(np.concatenate(soft)),
        "shown_slice": shown.number,
        "shown_slice_rmse_per_cm": per_slice[shown.number],
        "shown_slice_uncalibrated_rmse_per_cm": _root_mean(
            (shown.uncalibrated - shown.truth)[outline] ** 2
        ),
        "slice_rmse_per_cm": per_slice,
    }


def _root_mean(squares: np.ndarray) -> float:
    return float(np.sqrt(np.mean(squares)))


def _picture(
    work: files.Work,
    scan: Scan,
    shown: Shown,
    numbers: dict[str, Any],
    grey_range: tuple[float, float],
) -> Figure:
    picture = Figure(figsize=(WIDTH_IN, HEIGHT_IN), facecolor="white", layout="constrained")
    picture.get_layout_engine().set(w_pad=0.07, h_pad=0.05)
    size = f"{scan.size} x {scan.size} px"
    picture.suptitle(
        f"Tomography of a phantom: {scan.slices} slices of {size}, {scan.angles} angles",
        fontsize=13,
    )
    images, strip, charts = picture.subfigures(3, 1, height_ratios=(3.35, 1.6, 3.0))
    _draw_images(images, shown, grey_range)
    _draw_strip(strip, work, scan)
    profile, errors, table = charts.subplots(1, 3, width_ratios=(1.75, 1.05, 1.0))
    _draw_profile(profile, shown, scan)
    _draw_errors(errors, numbers["slice_rmse_per_cm"])
    _draw_table(table, numbers)
    return picture


def _draw_images(place: SubFigure, shown: Shown, grey_range: tuple[float, float]) -> None:
    *grey_axes, error_axes = place.subplots(1, 4)
    low, high = grey_range
    images = (shown.truth, shown.uncalibrated, shown.slice)
    titles = (f"phantom, slice {shown.number}", "without calibration", "reconstruction")
    for axes, image, title in zip(grey_axes, images, titles, strict=True):
        grey = axes.imshow(image, cmap="gray", vmin=low, vmax=high)
        _as_image(axes, title)
        axes.axhline(shown.profile_row, color="#ffb000", lw=0.8, dashes=(4, 4))
    error = shown.slice - shown.truth
    limits = {"vmin": -ERROR_RANGE_PER_CM, "vmax": ERROR_RANGE_PER_CM}
    signed = error_axes.imshow(error, cmap="RdBu_r", **limits)
    _as_image(error_axes, "error of the reconstruction")
    _add_bar(place, grey, grey_axes, "attenuation, 1/cm", aspect=66)
    _add_bar(place, signed, [error_axes], "reconstruction minus phantom, 1/cm", aspect=20)


def _add_bar(place: SubFigure, mapped: Any, axes: list[Axes], label: str, aspect: float) -> None:
    bar = place.colorbar(mapped, ax=axes, location="bottom", shrink=0.9, aspect=aspect, pad=0.03)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)


def _as_image(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])


def _draw_strip(place: SubFigure, work: files.Work, scan: Scan) -> None:
    count = min(STRIP, scan.slices)
    numbers = np.linspace(0, scan.slices - 1, count).round().astype(int).tolist()
    for axes, number in zip(np.atleast_1d(place.subplots(1, count)), numbers, strict=True):
        axes.imshow(imread(work.slice_picture(number)), cmap="gray", vmin=0, vmax=1)
        _as_image(axes, "")
        axes.set_xlabel(f"slice {number}", fontsize=8.5)


def _draw_profile(axes: Axes, shown: Shown, scan: Scan) -> None:
    across_cm = (np.arange(scan.size) - scan.middle_px) * scan.pixel_cm
    for image, label, look in (
        (shown.truth, "phantom", {"color": GREY, "lw": 3.0}),
        (shown.uncalibrated, "without calibration", {"color": RED, "lw": 0.9}),
        (shown.slice, "reconstruction", {"color": BLUE, "lw": 1.2}),
    ):
        axes.plot(across_cm, image[shown.profile_row], label=label, **look)
    axes.set_title("profile along the dashed line", fontsize=10)
    axes.set_xlabel("x, cm", fontsize=9)
    axes.set_ylabel("attenuation, 1/cm", fontsize=9)
    axes.set_xlim(-1.7, 1.7)
    axes.set_ylim(-0.15, 1.1)
    axes.legend(
        fontsize=8, loc="upper center", ncols=3, frameon=False, columnspacing=1.2, handlelength=1.5
    )
    _as_chart(axes)


def _draw_errors(axes: Axes, slice_rmse_per_cm: list[float]) -> None:
    axes.plot(slice_rmse_per_cm, color=BLUE, lw=1.4, marker=".", ms=3)
    axes.set_title("error of each slice", fontsize=10)
    axes.set_xlabel("slice", fontsize=9)
    axes.set_ylabel("RMSE, 1/cm", fontsize=9)
    axes.set_ylim(0, 1.3 * max(slice_rmse_per_cm))
    _as_chart(axes)


def _as_chart(axes: Axes) -> None:
    axes.tick_params(labelsize=8)
    axes.grid(color="#e6e8eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_table(axes: Axes, numbers: dict[str, Any]) -> None:
    groups = {
        "rotation axis, px": (
            ("true shift", f"{numbers['true_shift_px']:.3f}"),
            ("found shift", f"{numbers['found_shift_px']:.3f}"),
        ),
        "RMSE of all slices, 1/cm": (
            ("whole object", f"{numbers['rmse_per_cm']:.4f}"),
            ("inside the skull", f"{numbers['rmse_inside_skull_per_cm']:.4f}"),
        ),
        f"RMSE of slice {numbers['shown_slice']}, 1/cm": (
            ("without calibration", f"{numbers['shown_slice_uncalibrated_rmse_per_cm']:.4f}"),
            ("reconstruction", f"{numbers['shown_slice_rmse_per_cm']:.4f}"),
        ),
    }
    axes.axis("off")
    y, line, look = 1.0, 0.1, {"va": "top", "transform": axes.transAxes}
    for heading, rows in groups.items():
        axes.text(0.08, y, heading, fontsize=9.5, weight="bold", **look)
        for label, value in rows:
            y -= line
            axes.text(0.08, y, label, fontsize=9, **look)
            axes.text(1.0, y, value, fontsize=9, ha="right", **look)
        y -= 1.5 * line

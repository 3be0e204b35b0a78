"""The computations of examples/reconstruction on a small scan, without batchyard."""

from __future__ import annotations

import importlib
import json
import math
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")

EXAMPLE = Path(__file__).parents[2] / "examples" / "reconstruction"
# Without figure, which needs matplotlib.
MODULES = "scan phantom detector correct ramp centre arrays backproject files __main__".split()
SHIFT_PX = 2.3
SMALL = ("--size", "96", "--slices", "6", "--angles", "150", "--shift-px", str(SHIFT_PX))


@pytest.fixture(scope="module")
def recon() -> Iterator[SimpleNamespace]:
    """The example's modules; the import path and sys.modules are as before afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield SimpleNamespace(
            **{name.strip("_"): importlib.import_module(f"recon.{name}") for name in MODULES}
        )
    for name in [name for name in sys.modules if name == "recon" or name.startswith("recon.")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def small(recon: SimpleNamespace) -> SimpleNamespace:
    """A small scan, simulated, corrected and filtered once for all tests."""
    scan = recon.scan.Scan(size=96, slices=6, angles=150)
    raw = recon.detector.simulate(scan, SHIFT_PX, photons=20000, seed=7)
    integrals = recon.correct.line_integrals(raw.projections, raw.dark, raw.flat)
    filtered = recon.ramp.apply(integrals.transpose(1, 0, 2))
    return SimpleNamespace(scan=scan, raw=raw, integrals=integrals, filtered=filtered)


def exact_integrals(recon: SimpleNamespace, scan: Any, shift_px: float) -> Any:
    edges = (np.arange(scan.size + 1) - 0.5 - scan.middle_px - shift_px) * (2 / scan.size)
    return np.stack([recon.phantom.project(turn, edges, scan.heights) for turn in scan.angles_rad])


def rmse_in_object(recon: SimpleNamespace, scan: Any, slices: Any) -> float:
    squares = [
        ((image - recon.phantom.draw_slice(scan.size, z)) ** 2)[
            recon.phantom.draw_mask(scan.size, z, 0)
        ]
        for image, z in zip(slices, scan.heights, strict=True)
    ]
    return float(np.sqrt(np.concatenate(squares).mean()))


# The phantom: projections and slices must describe the same object.


def test_projections_and_slices_hold_the_same_mass(
    recon: SimpleNamespace, small: SimpleNamespace
) -> None:
    scan = small.scan
    projected = exact_integrals(recon, scan, SHIFT_PX).sum(axis=2) * scan.pixel_cm
    drawn = [recon.phantom.draw_slice(scan.size, z).sum() * scan.pixel_cm**2 for z in scan.heights]
    assert np.ptp(projected, axis=0).max() < 1e-9  # the same from every side
    assert projected[0] == pytest.approx(drawn, rel=5e-3)


def test_projection_at_angle_0_is_the_column_sum(
    recon: SimpleNamespace, small: SimpleNamespace
) -> None:
    scan = small.scan
    projected = exact_integrals(recon, scan, shift_px=0)[0]
    drawn = [
        recon.phantom.draw_slice(scan.size, z).sum(axis=0) * scan.pixel_cm for z in scan.heights
    ]
    assert np.abs(projected - drawn).max() < 0.03 * projected.max()


def test_object_that_leaves_the_detector_is_refused(recon: SimpleNamespace) -> None:
    scan = recon.scan.Scan(size=96, slices=2, angles=10)
    with pytest.raises(recon.scan.InputError, match=r"shift of 9 px .* leaves the detector"):
        recon.detector.simulate(scan, shift_px=9, photons=1000, seed=1)


# Correction.


def test_bad_pixels_are_found_exactly(recon: SimpleNamespace, small: SimpleNamespace) -> None:
    found = recon.correct.find_bad_pixels(small.raw.dark, small.raw.flat)
    assert small.raw.bad.any()
    assert np.array_equal(found, small.raw.bad)


def test_bad_pixels_are_repaired_from_good_neighbours(recon: SimpleNamespace) -> None:
    images = np.arange(2 * 4 * 5, dtype=float).reshape(
        2, 4, 5
    )  # a slope: a neighbourhood's mean is its middle
    bad = np.zeros((4, 5), dtype=bool)
    bad[1, 2] = bad[3, 0] = bad[3, 1] = True
    broken = images.copy()
    broken[:, bad] = 1e6
    repaired = recon.correct.repair(broken, bad)
    assert repaired[:, 1, 2] == pytest.approx(images[:, 1, 2])
    assert repaired[:, 3, 0] == pytest.approx(
        images[:, 2, :2].mean(axis=1)
    )  # its bad neighbour is left out
    assert np.array_equal(repaired[:, ~bad], images[:, ~bad])
    assert broken[0, 1, 2] == 1e6  # the input is not changed


def test_flat_field_undoes_uneven_light_and_offset(recon: SimpleNamespace) -> None:
    rng = np.random.default_rng(3)
    offset, light = rng.integers(50, 90, (4, 6)), rng.integers(20000, 40000, (4, 6))
    transmission = rng.uniform(0.1, 1.0, (3, 4, 6))
    counts = (offset + light * transmission).round().astype(np.uint16)
    dark, flat = offset.astype(np.uint16)[None], (offset + light).astype(np.uint16)[None]
    assert recon.correct.line_integrals(counts, dark, flat) == pytest.approx(
        -np.log(transmission), abs=1e-3
    )


def test_corrected_projections_are_the_exact_ones_within_the_noise(
    recon: SimpleNamespace, small: SimpleNamespace
) -> None:
    off = small.integrals - exact_integrals(recon, small.scan, SHIFT_PX)
    assert abs(off.mean()) < 0.002
    assert (
        off[:, ~small.raw.bad].std() < 0.015
    )  # 20,000 photons, of which the object lets a third through
    assert (
        np.abs(off[:, small.raw.bad]).max() < 0.3
    )  # left as they are, they would be off by as much as 9


# Filter.


def test_filter_is_a_ramp_up_to_half_of_nyquist(recon: SimpleNamespace) -> None:
    gain = recon.ramp.response(96)
    cycles_per_px = np.linspace(0, 0.5, len(gain))
    assert len(gain) == 129  # 96 px padded to 256
    ramp = cycles_per_px <= 0.25
    assert gain[ramp] == pytest.approx(cycles_per_px[ramp], abs=2e-3)
    assert 0 < gain[0] < 1e-3  # |frequency| itself would have 0 here, and a darker slice
    assert gain[-1] == pytest.approx(0, abs=1e-9)
    assert (gain <= cycles_per_px + 2e-3).all()


def test_filtered_chords_of_a_disc_are_flat_inside_it(recon: SimpleNamespace) -> None:
    radius_px = 40.0
    from_middle = np.arange(128) - 63.5
    chords = 2 * np.sqrt(np.clip(radius_px**2 - from_middle**2, 0, None))
    filtered = recon.ramp.apply(chords[None])[0]
    # Back-projection multiplies by pi, and a disc of attenuation 1 must come out as 1.
    assert filtered[np.abs(from_middle) < 30] * math.pi == pytest.approx(1.0, abs=0.03)


# Centre.


@pytest.mark.parametrize("shift_px", [-3.25, 0.0, 0.4, SHIFT_PX])
def test_centre_of_exact_projections_is_exact(recon: SimpleNamespace, shift_px: float) -> None:
    scan = recon.scan.Scan(size=96, slices=4, angles=60)
    found = recon.centre.find(exact_integrals(recon, scan, shift_px), scan.angles_rad)
    assert found.centre_px - scan.middle_px == pytest.approx(shift_px, abs=1e-3)


def test_centre_is_found_through_the_noise(recon: SimpleNamespace, small: SimpleNamespace) -> None:
    found = recon.centre.find(small.integrals, small.scan.angles_rad)
    assert found.centre_px - small.scan.middle_px == pytest.approx(SHIFT_PX, abs=0.1)
    assert found.error_px < 0.1
    assert found.rows == small.scan.slices


# Back-projection.


def test_reconstruction_is_right_with_the_right_centre_only(
    recon: SimpleNamespace, small: SimpleNamespace
) -> None:
    xp, scan = recon.arrays.on_numpy(), small.scan
    centre_px = recon.centre.find(small.integrals, scan.angles_rad).centre_px
    right = recon.backproject.backproject(xp, small.filtered, scan, centre_px)
    wrong = recon.backproject.backproject(xp, small.filtered, scan, scan.middle_px)
    rmse_per_cm = rmse_in_object(recon, scan, right)
    assert rmse_per_cm < 0.05  # bone 0.8, tissue 0.25; most of it is the blur of the skull's edges
    assert rmse_in_object(recon, scan, wrong) > 4 * rmse_per_cm


def test_reconstruction_has_the_right_scale(recon: SimpleNamespace, small: SimpleNamespace) -> None:
    scan = small.scan
    centre_px = scan.middle_px + SHIFT_PX
    slices = recon.backproject.backproject(recon.arrays.on_numpy(), small.filtered, scan, centre_px)
    masks = [recon.phantom.draw_mask(scan.size, z, 0) for z in scan.heights]
    truth = [recon.phantom.draw_slice(scan.size, z) for z in scan.heights]
    for image, true, mask in zip(slices, truth, masks, strict=True):
        assert image[mask].mean() == pytest.approx(true[mask].mean(), rel=0.02)


def test_slices_do_not_depend_on_how_they_are_grouped(
    recon: SimpleNamespace, small: SimpleNamespace
) -> None:
    xp, centre_px = recon.arrays.on_numpy(), small.scan.middle_px + SHIFT_PX
    together = recon.backproject.backproject(xp, small.filtered[:3], small.scan, centre_px)
    alone = recon.backproject.backproject(xp, small.filtered[1:2], small.scan, centre_px)
    assert together[1].tobytes() == alone[0].tobytes()


def test_pytorch_computes_the_same_slices(recon: SimpleNamespace, small: SimpleNamespace) -> None:
    torch = pytest.importorskip("torch")
    centre_px = small.scan.middle_px + SHIFT_PX
    of_torch, of_numpy = (
        recon.backproject.backproject(xp, small.filtered[:2], small.scan, centre_px)
        for xp in (recon.arrays.on_torch(torch, "cpu"), recon.arrays.on_numpy())
    )
    assert of_torch == pytest.approx(of_numpy, abs=1e-4)


# Array library.


def test_cpu_is_numpy(recon: SimpleNamespace) -> None:
    assert recon.arrays.choose({}).name == "numpy"
    assert recon.arrays.choose({"BATCHYARD_DEVICE": "cpu"}).name == "numpy"


def fake_library(name: str, has_gpu: bool) -> ModuleType:
    """As much of CuPy or PyTorch as choosing looks at."""
    library = ModuleType(name)
    library.cuda = SimpleNamespace(is_available=lambda: has_gpu)  # type: ignore[attr-defined]
    for function in ("asarray", "asnumpy", "floor", "clip", "int64"):
        setattr(library, function, None)
    return library


@pytest.mark.parametrize(
    ("cupy_gpu", "torch_gpu", "chosen"),
    [(True, True, "cupy"), (False, True, "torch"), (None, True, "torch"), (True, None, "cupy")],
)
def test_gpu_is_whichever_library_finds_one(
    recon: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    cupy_gpu: bool | None,
    torch_gpu: bool | None,
    chosen: str,
) -> None:
    for name, has_gpu in (("cupy", cupy_gpu), ("torch", torch_gpu)):
        # None in sys.modules makes the import fail, as if it were not installed.
        library = None if has_gpu is None else fake_library(name, has_gpu)
        monkeypatch.setitem(sys.modules, name, library)  # type: ignore[arg-type]
    assert recon.arrays.choose({"BATCHYARD_DEVICE": "gpu"}).name == chosen


def test_gpu_that_nobody_finds_is_an_error_and_not_a_slow_run(
    recon: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_library("cupy", has_gpu=False))
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    with pytest.raises(recon.scan.InputError, match="--no-gpu"):
        recon.arrays.choose({"BATCHYARD_DEVICE": "gpu"})
    with pytest.raises(recon.scan.InputError, match="cpu or gpu"):
        recon.arrays.choose({"BATCHYARD_DEVICE": "tpu"})


# Files.


def decode_grey_png(content: bytes) -> Any:
    """A second, independent reading of the format: signature, checked chunks, unfiltered lines."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + length]
        assert struct.unpack(">I", content[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            kind + body
        )
        chunks[kind] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 0, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(
        height, width + 1
    )
    assert (lines[:, 0] == 0).all()
    return lines[:, 1:]


def test_png_holds_the_picture(recon: SimpleNamespace) -> None:
    image = np.array([[-1.0, 0.0, 0.5], [1.0, 2.0, 0.25]])
    content = recon.files.grey_png(image, black=0.0, white=1.0)
    assert decode_grey_png(content).tolist() == [[0, 0, 128], [255, 255, 64]]


def test_png_is_read_by_matplotlib(recon: SimpleNamespace, tmp_path: Path) -> None:
    picture = pytest.importorskip("matplotlib.image")
    path = tmp_path / "slice.png"
    recon.files.write_bytes(path, recon.files.grey_png(np.eye(5), 0, 1))
    assert np.array_equal(picture.imread(path), np.eye(5, dtype=np.float32))


def test_failed_write_leaves_the_old_file_and_nothing_else(
    recon: SimpleNamespace, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "centre.json"
    recon.files.write_json(path, {"centre_px": 1.0})
    with pytest.raises(TypeError):
        recon.files.write_bytes(path, "not bytes")
    assert recon.files.read_json(path) == {"centre_px": 1.0}
    assert list(path.parent.iterdir()) == [path]


def test_file_is_replaced_and_not_written_over(recon: SimpleNamespace, tmp_path: Path) -> None:
    path, reader = tmp_path / "centre.json", tmp_path / "held-by-a-reader"
    recon.files.write_bytes(path, b"old")
    reader.hardlink_to(path)
    recon.files.write_bytes(path, b"new")
    assert (path.read_bytes(), reader.read_bytes()) == (b"new", b"old")


def test_missing_input_says_what_to_do(recon: SimpleNamespace, tmp_path: Path, capsys: Any) -> None:
    assert recon.main.main(["--work", str(tmp_path), "calibrate"]) == 2
    assert "scan.json is not there; the step that writes it must run" in capsys.readouterr().err


# The commands.


@pytest.mark.parametrize(("total", "parts"), [(64, 32), (7, 3), (3, 8), (360, 8)])
def test_each_item_is_in_exactly_one_part(recon: SimpleNamespace, total: int, parts: int) -> None:
    ranges = [recon.scan.part_range(total, part, parts) for part in range(1, parts + 1)]
    assert [item for items in ranges for item in items] == list(range(total))


@pytest.mark.parametrize(
    ("step", "parts"), [("preprocess", 8), ("filter", 32), ("reconstruct", 32)]
)
def test_commands_file_names_every_part_once_and_in_order(step: str, parts: int) -> None:
    # In order, since child i of reconstruct waits for child i of filter only.
    lines = [
        line
        for line in (EXAMPLE / f"{step}.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert lines == [
        f"python -m recon {step} --part {part}/{parts}" for part in range(1, parts + 1)
    ]


@pytest.mark.parametrize("part", ["0/4", "5/4", "4", "a/b", "1/0"])
def test_wrong_part_is_refused(recon: SimpleNamespace, part: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        recon.main.main(["filter", "--part", part])
    assert stopped.value.code == 2
    assert re.search(r"is not a part such as 3/32", capsys.readouterr().err)


def run_all(recon: SimpleNamespace, work: Path, parts: int) -> None:
    def step(*arguments: str) -> None:
        assert recon.main.main(["--work", str(work), *arguments]) == 0

    step("simulate", *SMALL)
    for name in ("preprocess", "filter", "calibrate", "reconstruct"):
        if name == "calibrate":
            step(name)
            continue
        for part in range(parts, 0, -1):  # children end in any order
            step(name, "--part", f"{part}/{parts}")


@pytest.mark.slow
def test_same_bytes_however_the_work_is_cut_and_repeated(
    recon: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BATCHYARD_DEVICE", raising=False)
    once, again = tmp_path / "once", tmp_path / "again"
    run_all(recon, once, parts=1)
    run_all(recon, again, parts=8)  # more parts than slices: some have nothing to do
    run_all(recon, again, parts=4)  # over what is there
    files = sorted(path.relative_to(once) for path in once.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert len([path for path in files if path.parent.name == "slices"]) == 2 * 6
    assert [
        path for path in files if (once / path).read_bytes() != (again / path).read_bytes()
    ] == []


def test_figure_says_how_good_it_is(
    recon: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = pytest.importorskip("matplotlib.image")
    monkeypatch.delenv("BATCHYARD_DEVICE", raising=False)
    run_all(recon, tmp_path, parts=2)
    assert recon.main.main(["--work", str(tmp_path), "figure"]) == 0
    summary = json.loads((tmp_path / "figure" / "summary.json").read_text())
    assert abs(summary["shift_error_px"]) < 0.1
    assert summary["rmse_per_cm"] < 0.05
    assert summary["shown_slice_uncalibrated_rmse_per_cm"] > 4 * summary["shown_slice_rmse_per_cm"]
    assert len(summary["slice_rmse_per_cm"]) == 6
    assert picture.imread(tmp_path / "figure" / "reconstruction.png").shape[1] == 1400

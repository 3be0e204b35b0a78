"""A folder of pictures: decode, shrink, to grey, encode. Reads the folder, if one is given; else makes its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import CPU, GPU, Array, Arrays, Candidate, Function, Sample, Workload
from batchyard.errors import InputError, from_os_error

#: a picture of our own
_HEIGHT, _WIDTH = 768, 1024
#: five eighths: no decoder can deliver that by itself, so that resizing is really done
_NUMERATOR, _DENOMINATOR = 5, 8
_QUALITY = 90
_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")


def _shrunk(side: int) -> int:
    return max(1, side * _NUMERATOR // _DENOMINATOR)


# -- inputs -----------------------------------------------------------------------------------------------------


def made(size: int, rng: np.random.Generator) -> Arrays:
    """Pictures of clouds as JPEG files, in memory."""
    return {f"file{n:04}": _encoded(_clouds(rng)) for n in range(size)}


def _clouds(rng: np.random.Generator) -> Array:
    """Noise at several scales: as smooth and as detailed as photographs, roughly."""
    image = np.zeros((_HEIGHT, _WIDTH, 3), dtype=np.float32)
    for cell in (256, 64, 16, 4):
        coarse = rng.random((_HEIGHT // cell, _WIDTH // cell, 3), dtype=np.float32)
        image += coarse.repeat(cell, axis=0).repeat(cell, axis=1) * np.float32(cell**0.5)
    return np.asarray((image * (255 / image.max())).astype(np.uint8))


def _encoded(image: Array) -> Array:
    try:
        import cv2  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        import io

        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=_QUALITY)
        return np.frombuffer(buffer.getvalue(), dtype=np.uint8)
    return np.asarray(
        cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1]
    ).ravel()


def _decoded(data: Array) -> Array:
    """Red, green, blue."""
    try:
        import cv2
    except ImportError:
        import io

        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))
    return np.asarray(_with_pixels(cv2.imdecode(data, cv2.IMREAD_COLOR)))[:, :, ::-1]


def _with_pixels(image: Any) -> Any:
    """OpenCV says nothing about a picture that it cannot decode, and returns none."""
    if image is None:
        raise ValueError("it is broken, or no picture")
    return image


def _named(name: str, one: Callable[[Any], Array], data: Any) -> Array:
    """Of hundreds of files, it must be known which one it was."""
    try:
        return one(data)
    except (ImportError, MemoryError):
        raise
    except Exception as exc:
        # Pillow names the file in memory, which is nobody's.
        said = "it is broken, or no picture" if "BytesIO" in str(exc) else str(exc)
        raise InputError(f"the picture {name}: {said}") from exc


def files_in(folder: Path) -> list[Path]:
    try:
        found = sorted(
            path for path in folder.iterdir() if path.suffix.lower() in _ENDINGS and path.is_file()
        )
    except OSError as exc:
        raise InputError(
            f"--images {folder}: {exc.strerror or exc}", hint="give a folder of pictures"
        ) from None
    if not found:
        raise InputError(
            f"--images {folder}: there are no pictures in it",
            hint=f"they end in one of {', '.join(_ENDINGS)}",
        )
    return found


def _read(paths: Sequence[Path], size: int, rng: np.random.Generator) -> Arrays:
    try:
        return {
            path.name: np.frombuffer(path.read_bytes(), dtype=np.uint8) for path in paths[:size]
        }
    except OSError as exc:
        raise from_os_error(exc, "read the picture") from exc


# -- what must come out -----------------------------------------------------------------------------------------


def reference(size: int, given: Mapping[str, Array]) -> Sample:
    """Of the first and the last picture: each new pixel is the mean of the area that it covers."""
    files = list(given.items())
    ends = sorted({0, len(files) - 1})
    return Sample([(n, _expected(_named(files[n][0], _decoded, files[n][1]))) for n in ends])


def _expected(image: Array) -> Array:
    grey = image @ np.array([0.299, 0.587, 0.114])
    down, across = (_areas(side, _shrunk(side)) for side in grey.shape)
    return np.asarray(down @ grey @ across.T)


def _areas(old: int, new: int) -> Array:
    """Row n: how much of each old pixel lies under new pixel n."""
    edges = np.arange(new + 1) * (old / new)
    low, high = edges[:-1, None], edges[1:, None]
    at = np.arange(old)[None, :]
    covered = np.clip(np.minimum(high, at + 1) - np.maximum(low, at), 0, None)
    return np.asarray(covered / covered.sum(axis=1, keepdims=True))


def _finish(pictures: Sequence[Array]) -> list[Array]:
    return [_decoded(one)[:, :, 1].astype(np.float64) for one in pictures]


# -- ways to do it ----------------------------------------------------------------------------------------------


def _over_files(one: Callable[[Any], Array], threads: int) -> Function:
    if threads == 1:
        return lambda **files: [_named(name, one, data) for name, data in files.items()]
    pool = ThreadPoolExecutor(threads)
    return lambda **files: list(pool.map(lambda file: _named(file[0], one, file[1]), files.items()))


def with_opencv(in_threads: bool, kit: Kit, size: int) -> Function:
    cv2 = kit.lib

    def one(data: Array) -> Array:
        image = _with_pixels(cv2.imdecode(data, cv2.IMREAD_COLOR))
        shape = (_shrunk(image.shape[1]), _shrunk(image.shape[0]))
        grey = cv2.cvtColor(
            cv2.resize(image, shape, interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2GRAY
        )
        return np.asarray(cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])

    return _over_files(one, kit.threads if in_threads else 1)


def with_pillow(kit: Kit, size: int) -> Function:
    import io

    from PIL import Image

    def one(data: Array) -> Array:
        image = Image.open(io.BytesIO(data.data)).convert("RGB")
        small = image.resize(
            (_shrunk(image.width), _shrunk(image.height)), Image.Resampling.BOX
        ).convert("L")
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=_QUALITY)
        return np.frombuffer(buffer.getvalue(), dtype=np.uint8)

    return _over_files(one, kit.threads)


def with_torch(kit: Any, size: int) -> Function:
    """Decoded and encoded by the CPU with OpenCV, shrunk and made grey by the device."""
    import cv2

    torch, functional = kit.lib, kit.lib.nn.functional
    weights = torch.tensor([0.114, 0.587, 0.299], device=kit.device).view(1, 3, 1, 1)

    def one(data: Any) -> Array:
        decoded = _with_pixels(cv2.imdecode(data.cpu().numpy(), cv2.IMREAD_COLOR))
        image = torch.from_numpy(decoded).to(kit.device)
        planes = image.permute(2, 0, 1).unsqueeze(0).float()
        shape = (_shrunk(image.shape[0]), _shrunk(image.shape[1]))
        small = functional.interpolate(planes, size=shape, mode="bilinear", antialias=True)
        grey = (small * weights).sum(dim=1)[0].round().clamp(0, 255).byte().cpu().numpy()
        return np.asarray(cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])

    return _over_files(one, 1)


CANDIDATES = (
    Candidate("files in threads", "cv2", partial(with_opencv, True), finish=_finish, kinds=(CPU,)),
    Candidate("a file at a time", "cv2", partial(with_opencv, False), finish=_finish, kinds=(CPU,)),
    Candidate("files in threads", "pillow", with_pillow, finish=_finish, kinds=(CPU,)),
    Candidate(
        "resized there, decoded and encoded by OpenCV",
        "torch",
        with_torch,
        finish=_finish,
        kinds=(GPU,),
    ),
)


def workload(folder: Path | None = None) -> Workload:
    """Of the pictures in the folder, or of our own."""
    paths = files_in(folder) if folder is not None else []
    pixels = 3.0 * _HEIGHT * _WIDTH
    return Workload(
        name="images",
        title="Decode, shrink, to grey, encode",
        sizes=(len(paths),) if paths else (8, 64),
        quick_sizes=(min(4, len(paths)),) if paths else (2, 4),
        inputs=partial(_read, paths) if paths else made,
        reference=reference,
        # JPEG loses, and libraries resize and round each in their way.
        tolerance=0.1,
        candidates=CANDIDATES,
        memory_bytes=lambda n: n * pixels * 8,
        label=lambda n: f"{n} pictures",
        copies_included=True,
    )

"""Pictures: decode, shrink, convert to grey, encode. From a folder, or generated."""

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

#: size of a generated picture
_HEIGHT, _WIDTH = 768, 1024
#: five eighths: decoders cannot shrink by this factor, so that the resizing is measured
_NUMERATOR, _DENOMINATOR = 5, 8
_QUALITY = 90
#: shares of red, green and blue
_GREY_WEIGHTS = (0.299, 0.587, 0.114)
_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")


def _shrink(side: int) -> int:
    return max(1, side * _NUMERATOR // _DENOMINATOR)


# -- inputs --


def generate(size: int, rng: np.random.Generator) -> Arrays:
    """Return pictures of clouds as JPEG files in memory."""
    return {f"file{n:04}": _encode(_clouds(rng)) for n in range(size)}


def _clouds(rng: np.random.Generator) -> Array:
    """Return noise at several scales, about as smooth and as detailed as a photograph."""
    image = np.zeros((_HEIGHT, _WIDTH, 3), dtype=np.float32)
    for cell in (256, 64, 16, 4):
        coarse = rng.random((_HEIGHT // cell, _WIDTH // cell, 3), dtype=np.float32)
        image += coarse.repeat(cell, axis=0).repeat(cell, axis=1) * np.float32(cell**0.5)
    return np.asarray((image * (255 / image.max())).astype(np.uint8))


def _encode(image: Array) -> Array:
    try:
        import cv2  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        import io

        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=_QUALITY)
        # Writable, as PyTorch wants it.
        return np.frombuffer(bytearray(buffer.getvalue()), dtype=np.uint8)
    return np.asarray(
        cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1]
    ).ravel()


def _decode(data: Array) -> Array:
    """Return the pixels as red, green, blue."""
    try:
        import cv2
    except ImportError:
        import io

        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))
    return np.asarray(_require_pixels(cv2.imdecode(data, cv2.IMREAD_COLOR)))[:, :, ::-1]


def _require_pixels(image: Any) -> Any:
    """Return what OpenCV decoded. Raises ValueError for None, which means a broken picture."""
    if image is None:
        raise ValueError("it is broken, or no picture")
    return image


def _naming_errors(name: str, function: Callable[[Any], Array], data: Any) -> Array:
    """Call the function with a picture's data, and name the picture in an error."""
    try:
        return function(data)
    except (ImportError, MemoryError):
        raise
    except Exception as exc:
        # Pillow's message only names the file object in memory.
        problem = "it is broken, or no picture" if "BytesIO" in str(exc) else str(exc)
        raise InputError(f"the picture {name}: {problem}") from exc


def files_in(folder: Path) -> list[Path]:
    """Return the pictures in a folder. Raises InputError if there are none."""
    try:
        paths = sorted(
            path for path in folder.iterdir() if path.suffix.lower() in _ENDINGS and path.is_file()
        )
    except OSError as exc:
        raise InputError(
            f"--images {folder}: {exc.strerror or exc}", hint="give a folder of pictures"
        ) from None
    if not paths:
        raise InputError(
            f"--images {folder}: there are no pictures in it",
            hint=f"they end in one of {', '.join(_ENDINGS)}",
        )
    return paths


def _read(paths: Sequence[Path], size: int, rng: np.random.Generator) -> Arrays:
    try:
        return {
            path.name: np.frombuffer(bytearray(path.read_bytes()), dtype=np.uint8)
            for path in paths[:size]
        }
    except OSError as exc:
        raise from_os_error(exc, "read the picture") from exc


# -- reference --


def reference(size: int, arrays: Mapping[str, Array]) -> Sample:
    """Return the expected first and last picture: a pixel is the mean of the area it covers."""
    files = list(arrays.items())
    ends = sorted({0, len(files) - 1})
    return Sample(
        [(n, _expected_picture(_naming_errors(files[n][0], _decode, files[n][1]))) for n in ends]
    )


def _expected_picture(image: Array) -> Array:
    grey = image @ np.array(_GREY_WEIGHTS)
    down, across = (_areas(side, _shrink(side)) for side in grey.shape)
    return np.asarray(down @ grey @ across.T)


def _areas(old: int, new: int) -> Array:
    """Return a matrix whose row n is the fraction of each old pixel under new pixel n."""
    edges = np.arange(new + 1) * (old / new)
    low, high = edges[:-1, None], edges[1:, None]
    at = np.arange(old)[None, :]
    covered = np.clip(np.minimum(high, at + 1) - np.maximum(low, at), 0, None)
    return np.asarray(covered / covered.sum(axis=1, keepdims=True))


def _finish(pictures: Sequence[Array]) -> list[Array]:
    return [_decode(picture)[:, :, 1].astype(np.float64) for picture in pictures]


# -- candidates --


def _over_files(convert: Callable[[Any], Array], threads: int) -> Function:
    """Return a function that converts all files, in this many threads."""
    if threads == 1:
        return lambda **files: [_naming_errors(name, convert, data) for name, data in files.items()]
    pool = ThreadPoolExecutor(threads)
    return lambda **files: list(
        pool.map(lambda file: _naming_errors(file[0], convert, file[1]), files.items())
    )


def with_opencv(in_threads: bool, kit: Kit, size: int) -> Function:
    cv2 = kit.lib

    def convert(data: Array) -> Array:
        image = _require_pixels(cv2.imdecode(data, cv2.IMREAD_COLOR))
        shape = (_shrink(image.shape[1]), _shrink(image.shape[0]))
        grey = cv2.cvtColor(
            cv2.resize(image, shape, interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2GRAY
        )
        return np.asarray(cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])

    return _over_files(convert, kit.threads if in_threads else 1)


def with_pillow(kit: Kit, size: int) -> Function:
    import io

    from PIL import Image

    def convert(data: Array) -> Array:
        image = Image.open(io.BytesIO(data.data)).convert("RGB")
        small = image.resize(
            (_shrink(image.width), _shrink(image.height)), Image.Resampling.BOX
        ).convert("L")
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=_QUALITY)
        return np.frombuffer(buffer.getvalue(), dtype=np.uint8)

    return _over_files(convert, kit.threads)


def _make_shrinker(kit: Any, weights: Sequence[float]) -> Callable[[Any], Any]:
    """Return a function that makes a picture grey and shrinks it, on the device.

    The picture has the dimensions channels, height, width; ``weights`` are those of the channels.
    A pixel is the mean of the area it covers, as on the CPU: bilinear filters blur more.
    """
    torch, functional = kit.lib, kit.lib.nn.functional
    shares = torch.tensor(list(weights), device=kit.device).view(3, 1, 1)

    def shrink(image: Any) -> Any:
        # Grey first: the mean of one channel is less work than that of three.
        grey = (image.float() * shares).sum(dim=0)
        shape = (_shrink(image.shape[1]), _shrink(image.shape[2]))
        small = functional.interpolate(grey[None, None], size=shape, mode="area")
        return small[0, 0].round().clamp(0, 255).byte()

    return shrink


def with_torch(kit: Any, size: int) -> Function:
    """Decode and encode on the CPU with OpenCV, in threads; shrink and make grey on the device."""
    import cv2

    torch = kit.lib
    shrink = _make_shrinker(kit, _GREY_WEIGHTS[::-1])

    def convert(data: Any) -> Array:
        decoded = _require_pixels(cv2.imdecode(data.numpy(), cv2.IMREAD_COLOR))
        # The main thread's inference mode does not reach this one.
        with torch.inference_mode():
            image = torch.from_numpy(decoded).to(kit.device)
            grey = shrink(image.permute(2, 0, 1)).cpu().numpy()
        return np.asarray(cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])

    return _over_files(convert, kit.threads)


def with_nvjpeg(kit: Any, size: int) -> Function:
    """Decode, shrink and encode all pictures on the device; torchvision calls nvJPEG."""
    import torchvision  # type: ignore[import-not-found, unused-ignore]

    return decode_on_device(kit, torchvision.io)


def decode_on_device(kit: Any, io: Any) -> Function:
    """Return the function that converts all files. ``io``: torchvision.io."""
    shrink = _make_shrinker(kit, _GREY_WEIGHTS)

    def call(**files: Any) -> list[Array]:
        pictures = io.decode_jpeg(
            list(files.values()), mode=io.ImageReadMode.RGB, device=kit.device
        )
        # nvJPEG encodes no pictures of one channel.
        greys = [shrink(picture).expand(3, -1, -1).contiguous() for picture in pictures]
        return [np.asarray(file.cpu()) for file in io.encode_jpeg(greys, quality=_QUALITY)]

    return call


CANDIDATES = (
    Candidate("files in threads", "cv2", partial(with_opencv, True), finish=_finish, kinds=(CPU,)),
    Candidate("a file at a time", "cv2", partial(with_opencv, False), finish=_finish, kinds=(CPU,)),
    Candidate("files in threads", "pillow", with_pillow, finish=_finish, kinds=(CPU,)),
    Candidate(
        "decoded and encoded there by nvJPEG",
        "torch",
        with_nvjpeg,
        finish=_finish,
        kinds=(GPU,),
        takes_host_arrays=True,
    ),
    Candidate(
        "resized there, decoded and encoded by OpenCV in threads",
        "torch",
        with_torch,
        finish=_finish,
        kinds=(GPU,),
        takes_host_arrays=True,
    ),
)


def workload(folder: Path | None = None) -> Workload:
    """Return the workload for the pictures in a folder, or for generated ones."""
    paths = files_in(folder) if folder is not None else []
    pixels = 3.0 * _HEIGHT * _WIDTH
    return Workload(
        name="images",
        title="Decode, shrink, to grey, encode",
        sizes=(len(paths),) if paths else (8, 64),
        quick_sizes=(min(4, len(paths)),) if paths else (2, 4),
        inputs=partial(_read, paths) if paths else generate,
        reference=reference,
        # JPEG is lossy, and libraries resize and round differently.
        tolerance=0.1,
        candidates=CANDIDATES,
        memory_bytes=lambda n: n * pixels * 8,
        label=lambda n: f"{n} pictures",
        copies_included=True,
    )

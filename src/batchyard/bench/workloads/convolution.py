"""Image processing: two 3x3 convolutions with ReLU, then max-pooling."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from batchyard.bench.kits import Kit
from batchyard.bench.workload import Array, Arrays, Candidate, Function, Sample, Workload
from batchyard.bench.workloads import torch_compile

_CHANNELS = (3, 16, 32)
#: side of the squares of the result that are computed again in float64
_PATCH = 6
_NUMPY_ROWS = 32
_OPENCL = """
__kernel void convolve(const int height, const int width, const int channels,
                       __global const float *image, __constant float *weights,
                       __constant float *bias, __global float *out) {
    const int x = get_global_id(0), y = get_global_id(1), planes = get_global_size(2) / OUTPUTS;
    const int batch = get_global_id(2) / OUTPUTS, output = get_global_id(2) % OUTPUTS;
    if (x >= width || y >= height) return;
    float sum = bias[output];
    for (int c = 0; c < channels; c++)
        for (int i = -1; i <= 1; i++)
            for (int j = -1; j <= 1; j++)
                if (y + i >= 0 && y + i < height && x + j >= 0 && x + j < width)
                    sum = fma(
                        image[(((size_t)batch * channels + c) * height + y + i) * width + x + j],
                        weights[((output * channels + c) * 3 + i + 1) * 3 + j + 1], sum);
    out[(((size_t)batch * OUTPUTS + output) * height + y) * width + x] = fmax(sum, 0.0f);
}
__kernel void pool(const int height, const int width, __global const float *image,
                   __global float *out) {
    const int x = get_global_id(0), y = get_global_id(1);
    if (2 * x + 1 >= width || 2 * y + 1 >= height) return;
    __global const float *at = image + ((size_t)get_global_id(2) * height + 2 * y) * width + 2 * x;
    out[((size_t)get_global_id(2) * (height / 2) + y) * (width / 2) + x] =
        fmax(fmax(at[0], at[1]), fmax(at[width], at[width + 1]));
}
"""


def inputs(batch: int, size: int, rng: np.random.Generator) -> Arrays:
    def random(*shape: int) -> Array:
        return rng.random(shape, dtype=np.float32) - np.float32(0.5)

    first, second, third = _CHANNELS
    return {
        "image": random(batch, first, size, size),
        "w1": random(second, first, 3, 3),
        "b1": random(second),
        "w2": random(third, second, 3, 3),
        "b2": random(third),
    }


def reference(size: int, arrays: Mapping[str, Array]) -> Sample:
    """Return expected patches of the last image: its corners, edges and centre."""
    half, patch = size // 2, min(_PATCH, size // 2)
    parts: list[tuple[Any, Array]] = []
    starts = sorted({0, (half - patch) // 2, half - patch})
    for y in starts:
        for x in starts:
            index = (-1, slice(None), slice(y, y + patch), slice(x, x + patch))
            parts.append((index, _patch(arrays, size, y, x, patch)))
    return Sample(parts)


def _patch(arrays: Mapping[str, Array], size: int, y: int, x: int, patch: int) -> Array:
    """Compute one patch from the part of the image that it depends on."""
    image = np.pad(arrays["image"][-1].astype(np.float64), ((0, 0), (2, 2), (2, 2)))
    piece = image[:, 2 * y : 2 * (y + patch) + 4, 2 * x : 2 * (x + patch) + 4]
    first = np.maximum(_convolve(piece, arrays["w1"], arrays["b1"]), 0)
    # Outside of the image the first layer is zero, not the convolution of zeros.
    rows, columns = (
        np.arange(first.shape[1]) + 2 * y - 1,
        np.arange(first.shape[2]) + 2 * x - 1,
    )
    first[:, (rows < 0) | (rows >= size)] = 0
    first[:, :, (columns < 0) | (columns >= size)] = 0
    second = np.maximum(_convolve(first, arrays["w2"], arrays["b2"]), 0)
    return np.asarray(second.reshape(len(second), patch, 2, patch, 2).max(axis=(2, 4)))


def _convolve(image: Array, weights: Array, bias: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2))
    return np.asarray(np.einsum("chwij,ocij->ohw", windows, weights) + bias[:, None, None])


def channels_last(arrays: Arrays) -> Arrays:
    """Return arrays of the same shapes, with the channels of a pixel adjacent in memory."""
    return {
        name: np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        if array.ndim == 4
        else array
        for name, array in arrays.items()
    }


# -- NumPy --


def with_numpy(kit: Kit, size: int) -> Function:
    """Compute strips of rows: windows are the columns of a matrix that is multiplied."""

    def call(image: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
        batch, _, height, width = image.shape
        out = np.empty((batch, len(w2), height // 2, width // 2), dtype=np.float32)
        for n in range(batch):
            for top in range(0, height - 1, _NUMPY_ROWS):
                rows = min(_NUMPY_ROWS, (height - top) // 2 * 2)
                first = _strip(image[n], w1, b1, top - 1, rows + 2)
                # Rows outside of the image are zero for the second convolution.
                above, below = max(0, 1 - top), max(0, top + rows + 1 - height)
                first[:, :above], first[:, rows + 2 - below :] = 0, 0
                second = _product(np.pad(first, ((0, 0), (0, 0), (1, 1))), w2, b2)
                pairs = second[:, :, : width // 2 * 2].reshape(len(w2), rows // 2, 2, width // 2, 2)
                out[n, :, top // 2 : (top + rows) // 2] = pairs.max(axis=(2, 4))
        return out

    return call


def _strip(image: Array, weights: Array, bias: Array, top: int, rows: int) -> Array:
    """Return some rows of the convolution; the image is zero beyond its edges."""
    height = image.shape[1]
    low, high = max(0, top - 1), min(height, top + rows + 1)
    padding = ((0, 0), (low - (top - 1), top + rows + 1 - high), (1, 1))
    return _product(np.pad(image[:, low:high], padding), weights, bias)


def _product(padded: Array, weights: Array, bias: Array) -> Array:
    channels, rows, columns = padded.shape
    height, width = rows - 2, columns - 2
    windows = np.empty((channels, 3, 3, height, width), dtype=np.float32)
    for i in range(3):
        for j in range(3):
            windows[:, i, j] = padded[:, i : i + height, j : j + width]
    out = weights.reshape(len(weights), -1) @ windows.reshape(channels * 9, -1)
    out += bias[:, None]
    return np.asarray(np.maximum(out, 0, out=out).reshape(len(weights), height, width))


# -- PyTorch --


def with_torch(kit: Any, size: int) -> Function:
    functional = kit.lib.nn.functional

    def call(image: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        first = functional.relu_(functional.conv2d(image, w1, b1, padding=1))
        return functional.max_pool2d(
            functional.relu_(functional.conv2d(first, w2, b2, padding=1)), 2
        )

    return call


def pooled_first(kit: Any, size: int) -> Function:
    """Pool before ReLU: the result is the same, and ReLU has a quarter of the work."""
    functional = kit.lib.nn.functional

    def call(image: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        first = functional.relu_(functional.conv2d(image, w1, b1, padding=1))
        return functional.relu_(
            functional.max_pool2d(functional.conv2d(first, w2, b2, padding=1), 2)
        )

    return call


def with_compile(kit: Any, size: int) -> Function:
    """Let PyTorch compile ReLU and pooling into one loop."""
    return torch_compile.compile_function(kit, pooled_first(kit, size))


def in_tiles(rows: int, kit: Any, size: int) -> Function:
    """Compute all layers of a strip of rows while it is in the cache."""
    functional = kit.lib.nn.functional

    def strip(image: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        first = functional.relu_(functional.conv2d(image, w1, b1, padding=1))
        return functional.conv2d(first, w2, b2, padding=1)

    def call(image: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        height = image.shape[2]
        out = kit.lib.empty(
            (image.shape[0], w2.shape[0], height // 2, image.shape[3] // 2),
            device=image.device,
            memory_format=kit.lib.channels_last,
        )
        for top in range(0, height - 1, rows):
            end = min(top + rows, height // 2 * 2)
            low, high = max(0, top - 2), min(height, end + 2)
            second = strip(image[:, :, low:high], w1, b1, w2, b2)[:, :, top - low : end - low]
            out[:, :, top // 2 : end // 2] = functional.relu_(functional.max_pool2d(second, 2))
        return out

    return call


# -- OpenCL --


def with_opencl(kit: Any, size: int) -> Function:
    layers = [
        kit.build(f"#define OUTPUTS {outputs}\n{_OPENCL}", "convolve") for outputs in _CHANNELS[1:]
    ]
    pool = kit.build(f"#define OUTPUTS 1\n{_OPENCL}", "pool")
    side = np.int32(size)

    def call(image: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        batch, data = image.shape[0], image
        for layer, channels, weights, bias in zip(
            layers, _CHANNELS, (w1, w2), (b1, b2), strict=False
        ):
            outputs = weights.shape[0]
            out = kit.empty((batch, outputs, size, size))
            layer(
                *(kit.queue, (size, size, batch * outputs), None, side, side, np.int32(channels)),
                *(data.data, weights.data, bias.data, out.data),
            )
            data = out
        half = size // 2
        pooled = kit.empty((batch, _CHANNELS[-1], half, half))
        pool(
            kit.queue, (half, half, batch * _CHANNELS[-1]), None, side, side, data.data, pooled.data
        )
        return pooled

    return call


# -- the workloads --


def _flops(batch: int, n: int) -> float:
    first, second, third = _CHANNELS
    return batch * 2.0 * 9 * n * n * (first * second + second * third)


def _traffic(batch: int, n: int) -> float:
    return batch * 4.0 * n * n * (_CHANNELS[0] + _CHANNELS[2] / 4)


def _memory(batch: int, n: int) -> float:
    return batch * 4.0 * n * n * (sum(_CHANNELS) + _CHANNELS[2] / 4)


def _workload(name: str, batch: int, quick_sizes: tuple[int, ...]) -> Workload:
    return Workload(
        name=name,
        title=f"Convolutions, ReLU, pooling, batch {batch}",
        sizes=(2048, 4096),
        quick_sizes=quick_sizes,
        inputs=partial(inputs, batch),
        reference=reference,
        candidates=(
            Candidate("channels last", "torch", with_torch, arrange=channels_last),
            Candidate("channels last, pooled first", "torch", pooled_first, arrange=channels_last),
            Candidate(
                "channels last, tiles of 32 rows",
                "torch",
                partial(in_tiles, 32),
                channels_last,
                kinds=("cpu",),
            ),
            Candidate(
                "channels last, tiles of 128 rows",
                "torch",
                partial(in_tiles, 128),
                channels_last,
                kinds=("cpu",),
            ),
            Candidate(
                "channels last, torch.compile",
                "torch",
                with_compile,
                arrange=channels_last,
                compiles=True,
            ),
            Candidate("channels first", "torch", with_torch),
            Candidate("strips of 32 rows, matmul", "numpy", with_numpy),
            Candidate("direct", "opencl", with_opencl),
        ),
        flops=partial(_flops, batch),
        traffic_bytes=partial(_traffic, batch),
        memory_bytes=partial(_memory, batch),
        label=lambda n: f"{n} x {n}",
    )


WORKLOADS = (
    _workload("convolution", 1, (128, 256)),
    _workload("convolution-batch2", 2, (128, 256)),
)

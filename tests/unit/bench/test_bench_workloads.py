"""Every candidate of every workload is correct, as far as its library is installed.

No GPU is needed: PyTorch runs the code for CUDA on the CPU, OpenCL runs on PoCL, and a NumPy
stands in for CuPy.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from batchyard.bench import discovery, loading
from batchyard.bench.checking import Check
from batchyard.bench.kits import CupyKit, Kit, OpenClKit, TorchKit
from batchyard.bench.measuring import measure
from batchyard.bench.results import Outcome
from batchyard.bench.timing import Effort
from batchyard.bench.trials import Bench, candidate_name
from batchyard.bench.workload import Candidate, Workload
from batchyard.bench.workloads import convolution, images, torch_compile
from batchyard.errors import InputError

ONCE = Effort(min_calls=1, max_calls=1, budget_s=0.0)
#: small, and not a multiple of any tile
SIZES = {
    "matmul": (1, 33),
    "convolution": (12, 70, 131),
    "convolution-batch2": (34,),
    "blur": (48, 97),
    "images": (1, 3),
    "fft": (8, 15, 60),
    "triad": (4, 70_000),
    "copy-to-device": (1,),
    "copy-to-host": (1,),
    "backprojection": (7, 40),
}
WORKLOADS = {one.name: one for one in loading.load_builtin()}
PAIRS = [
    (workload, candidate) for workload in WORKLOADS.values() for candidate in workload.candidates
]


@cache
def kit_of(key: str) -> Kit | str:
    """Or the reason why there is none."""
    if key == "cupy":
        return CupyKit(
            cupy_like(), lambda name: importlib.import_module(name.replace("cupyx.", ""))
        )
    found = discovery.find_device("cpu", [key], 2)
    return found.kits.get(key) or "; ".join(found.missing.values())


def cupy_like() -> Any:
    """What CuPy has and NumPy has not, on top of NumPy."""
    pool = SimpleNamespace(total_bytes=lambda: 1234, free_all_blocks=lambda: None)
    stream = SimpleNamespace(synchronize=lambda: None)
    runtime = SimpleNamespace(
        memGetInfo=lambda: (2**40, 2**40),
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda n: {"name": b"NumPy"},
    )
    own = {
        "asnumpy": np.asarray,
        "fuse": lambda function: function,
        "get_default_memory_pool": lambda: pool,
        "cuda": SimpleNamespace(
            runtime=runtime, get_current_stream=lambda: stream, Device=lambda: SimpleNamespace(id=0)
        ),
    }
    return SimpleNamespace(
        **{name: getattr(np, name) for name in dir(np) if not name.startswith("_")},
        **own,
        __version__="0",
    )


@pytest.mark.parametrize(
    ("workload", "candidate"), PAIRS, ids=[f"{w.name}-{candidate_name(c)}" for w, c in PAIRS]
)
def test_a_candidate_is_right(workload: Workload, candidate: Candidate) -> None:
    kit = kit_of(candidate.kit)
    if isinstance(kit, str):
        pytest.skip(kit)
    if "nvJPEG" in candidate.name:
        pytest.skip("nvJPEG needs CUDA")
    if candidate.compiles:
        pytest.skip("test_what_pytorch_compiles_is_right, which is slow")
    if candidate.name.startswith("gaussian_filter") and isinstance(kit_of("scipy"), str):
        pytest.skip("it needs SciPy")
    if workload.name == "images" and candidate.kit == "torch" and isinstance(kit_of("cv2"), str):
        pytest.skip("it needs OpenCV")
    kind = candidate.kinds[0]
    only = Workload(
        **{
            **{name: getattr(workload, name) for name in workload.__slots__},
            "candidates": (candidate,),
        }
    )
    bench = Bench(discovery.Device(kind, {candidate.kit: kit}), ONCE)
    for size in SIZES[workload.name]:
        if candidate.kit == "opencl" and workload.name == "triad" and size % 4:
            continue
        one = measure(only, size, bench)
        assert (one.outcome, one.reason) == (Outcome.OK, "")
        assert one.warm_s and one.inputs_crc is not None


def test_every_workload_is_tried_here() -> None:
    assert set(SIZES) == set(WORKLOADS)


def test_numpy_alone_runs_all_that_needs_no_pictures_and_no_gpu() -> None:
    for workload in WORKLOADS.values():
        if "cpu" in workload.kinds and workload.name != "images":
            assert any(one.kit == "numpy" for one in workload.candidates), workload.name


def test_the_reference_of_the_convolutions_is_right() -> None:
    """Against loops that a reader can check."""
    size = 8
    given = convolution.inputs(1, size, np.random.default_rng(0))

    def layer(image: Any, weights: Any, bias: Any) -> Any:
        padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
        out = np.empty((len(weights), size, size))
        for o in range(len(weights)):
            for y in range(size):
                for x in range(size):
                    out[o, y, x] = max(
                        0.0, (padded[:, y : y + 3, x : x + 3] * weights[o]).sum() + bias[o]
                    )
        return out

    deep = layer(
        layer(given["image"][0].astype(float), given["w1"], given["b1"]), given["w2"], given["b2"]
    )
    expected = deep.reshape(32, 4, 2, 4, 2).max(axis=(2, 4))
    for index, part in convolution.reference(size, given).parts:
        np.testing.assert_allclose(part, expected[index[1:]], rtol=1e-12)


def test_pictures_of_a_folder(tmp_path: Path) -> None:
    codec = kit_of("cv2") if not isinstance(kit_of("cv2"), str) else kit_of("pillow")
    if isinstance(codec, str):
        pytest.skip("it needs OpenCV or Pillow")
    made = images.generate(2, np.random.default_rng(0))
    for name, data in made.items():
        (tmp_path / f"{name}.JPG").write_bytes(data.tobytes())
    (tmp_path / "notes.txt").write_text("no picture")
    workload = images.workload(tmp_path)
    assert workload.sizes == (2,)
    one = measure(workload, 2, Bench(discovery.Device("cpu", {codec.key: codec}), ONCE))
    assert one.outcome is Outcome.OK and one.label == "2 pictures"


@pytest.mark.parametrize(
    "bad", [b"no picture", b"", b"\xff\xd8\xff\xe0 cut", None], ids=["text", "empty", "jpeg", "cut"]
)
@pytest.mark.parametrize("name", ["a.jpg", "m.jpg"])
def test_a_broken_picture_is_named(tmp_path: Path, name: str, bad: bytes | None) -> None:
    codec = kit_of("cv2") if not isinstance(kit_of("cv2"), str) else kit_of("pillow")
    if isinstance(codec, str):
        pytest.skip("it needs OpenCV or Pillow")
    (data,) = images.generate(1, np.random.default_rng(0)).values()
    for good in ("b.jpg", "z.jpg"):
        (tmp_path / good).write_bytes(data.tobytes())
    (tmp_path / name).write_bytes(data.tobytes()[:300] if bad is None else bad)
    one = measure(
        images.workload(tmp_path), 3, Bench(discovery.Device("cpu", {codec.key: codec}), ONCE)
    )
    assert one.outcome is Outcome.FAILED and f"the picture {name}: " in one.reason
    assert "BytesIO" not in one.reason and "b.jpg" not in one.reason


@pytest.mark.parametrize(("name", "message"), [("none", "No such file"), ("empty", "no pictures")])
def test_a_folder_without_pictures(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        images.workload(tmp_path / name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyTorch about its own modules
def test_what_pytorch_compiles_is_right() -> None:
    kit = kit_of("torch")
    if isinstance(kit, str):
        pytest.skip(kit)
    try:
        torch_compile.require_compiler("cpu", os.environ)
    except ImportError as exc:
        pytest.skip(str(exc))
    (candidate,) = [one for one in WORKLOADS["convolution"].candidates if one.compiles]
    only = replace(WORKLOADS["convolution"], candidates=(candidate,))
    bench = Bench(discovery.Device("cpu", {"torch": kit}), ONCE)
    for size in (34, 70):
        one = measure(only, size, bench)
        assert one.outcome is Outcome.OK, one.reason


def test_without_a_compiler_the_candidate_says_what_it_needs() -> None:
    def find_none(name: str) -> str | None:
        return None

    def load_nothing(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    with pytest.raises(ImportError) as caught:
        torch_compile.require_compiler("cpu", {}, find_none)
    assert caught.value.name == "a compiler (g++ or clang++)"
    with pytest.raises(ImportError) as caught:
        torch_compile.require_compiler("cpu", {"CXX": "mine++"}, find_none)
    assert caught.value.name == "a compiler (mine++)"
    with pytest.raises(ImportError) as caught:
        torch_compile.require_compiler("gpu", {}, lambda name: name, load_nothing)
    assert caught.value.name == "triton"
    torch_compile.require_compiler("gpu", {}, lambda name: name, lambda name: None)
    torch_compile.require_compiler("cpu", {}, lambda name: name)


def test_pictures_are_decoded_and_encoded_on_the_device_in_one_call() -> None:
    kit = kit_of("torch")
    if isinstance(kit, str):
        pytest.skip(kit)
    torch, noted = kit.lib, []
    files = images.generate(2, np.random.default_rng(0))

    def decode_jpeg(data: list[Any], mode: str, device: str) -> list[Any]:
        noted.append(("decode", len(data), mode, device))
        return [
            torch.from_numpy(images._decode(one.numpy()).copy()).permute(2, 0, 1) for one in data
        ]

    def encode_jpeg(pictures: list[Any], quality: int) -> list[Any]:
        noted.append(("encode", len(pictures), quality))
        assert all(one.shape[0] == 3 and one.is_contiguous() for one in pictures)
        return [torch.from_numpy(images._encode(one.permute(1, 2, 0).numpy())) for one in pictures]

    io = SimpleNamespace(
        decode_jpeg=decode_jpeg,
        encode_jpeg=encode_jpeg,
        ImageReadMode=SimpleNamespace(RGB="RGB"),
    )
    call = images.decode_on_device(kit, io)
    result = call(**{name: torch.from_numpy(data.copy()) for name, data in files.items()})
    assert noted == [("decode", 2, "RGB", "cpu"), ("encode", 2, 90)]
    check = Check(images.reference(2, files), 0.1)
    assert check(images._finish(result)).problem == ""


def test_the_gpus_candidates_have_the_threads_of_the_cpu() -> None:
    torch = SimpleNamespace(
        __version__="2",
        version=SimpleNamespace(cuda="12"),
        cuda=SimpleNamespace(is_available=lambda: True, init=lambda: None),
        backends=SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace()), cudnn=SimpleNamespace()
        ),
    )
    found = discovery.find_device("gpu", ["torch"], 16, lambda name: torch)
    assert found.kits["torch"].threads == 16


class Tensor:
    """Notes how it is copied."""

    shape, dtype = (2,), "float32"

    def __init__(self, noted: list[str]) -> None:
        self.noted = noted

    def stride(self) -> tuple[int]:
        return (1,)

    def pin_memory(self) -> Tensor:
        self.noted.append("pin")
        return self

    def to(self, device: str, non_blocking: bool) -> Tensor:
        self.noted.append(f"to {device} {'at once' if non_blocking else ''}")
        return self

    def copy_(self, other: Tensor, non_blocking: bool) -> Tensor:
        self.noted.append(f"copy {'at once' if non_blocking else ''}")
        return self

    def cpu(self) -> Tensor:
        self.noted.append("cpu")
        return self

    def numpy(self) -> str:
        return "array"


def test_copies_of_cuda_are_pinned_and_reuse_their_buffer() -> None:
    noted: list[str] = []
    tensor = Tensor(noted)

    def empty_like(like: Any, device: str, pin_memory: bool) -> Any:
        noted.append(f"allocate {device} {pin_memory}")
        return tensor

    torch = SimpleNamespace(
        __version__="2",
        from_numpy=lambda array: tensor,
        is_tensor=lambda value: isinstance(value, Tensor),
        empty_like=empty_like,
        cuda=SimpleNamespace(synchronize=lambda device: noted.append("wait")),
    )
    kit = TorchKit(torch, "cuda:0")
    kit.to_device(kit.host(np.zeros(2)))
    assert noted == ["pin", "to cuda:0 at once"]
    noted.clear()
    assert [kit.to_host(tensor), kit.to_host(tensor)] == ["array", "array"]
    assert noted == ["allocate cpu True", "copy at once", "wait", "copy at once", "wait"]


def test_where_no_memory_can_be_pinned_copies_are_plain() -> None:
    noted: list[str] = []

    class Refusing(Tensor):
        def pin_memory(self) -> Tensor:
            raise RuntimeError("cannot pin")

    def empty_like(like: Any, device: str, pin_memory: bool) -> Any:
        raise RuntimeError("cannot pin")

    torch = SimpleNamespace(
        __version__="2",
        from_numpy=lambda array: Refusing(noted),
        is_tensor=lambda value: True,
        empty_like=empty_like,
    )
    kit = TorchKit(torch, "cuda:0")
    kit.to_device(kit.host(np.zeros(2)))
    kit.to_host(Tensor(noted))
    assert noted == ["to cuda:0 at once", "cpu"]


def test_copies_of_cupy_are_pinned_and_reuse_their_buffer() -> None:
    allocated: list[tuple[int, ...]] = []

    def empty_pinned(shape: tuple[int, ...], dtype: Any) -> Any:
        allocated.append(shape)
        return np.empty(shape, dtype)

    class DeviceArray(np.ndarray[Any, Any]):
        def set(self, array: Any) -> None:
            self[...] = array

    def asnumpy(array: Any, out: Any = None) -> Any:
        assert out is not None
        out[...] = array
        return out

    cupy = cupy_like()
    cupy.empty = lambda shape, dtype: np.empty(shape, dtype).view(DeviceArray)
    cupy.asnumpy = asnumpy
    kit = CupyKit(cupy, lambda name: SimpleNamespace(empty_pinned=empty_pinned))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    device = kit.to_device(kit.host(data))
    assert np.array_equal(kit.to_host(device), data) and np.array_equal(kit.to_host(device), data)
    assert allocated == [(2, 3), (2, 3)]
    # What is not contiguous is copied as CuPy does it.
    assert kit.host(data.T) is not None and allocated == [(2, 3), (2, 3)]


def test_cuda_through_pytorch_waits_and_counts() -> None:
    """The calls that the code makes on CUDA, on a stand-in that notes them."""
    noted: list[str] = []
    cuda = SimpleNamespace(
        synchronize=lambda device: noted.append("synchronize"),
        mem_get_info=lambda device: (5, 10),
        reset_peak_memory_stats=lambda device: noted.append("reset"),
        max_memory_allocated=lambda device: 7,
        empty_cache=lambda: noted.append("empty"),
        get_device_name=lambda device: "Some GPU",
    )
    kit = TorchKit(SimpleNamespace(__version__="2", cuda=cuda), "cuda:0")
    kit.synchronise()
    kit.reset_peak()
    kit.tidy()
    assert noted == ["synchronize", "reset", "empty"]
    assert (kit.free_bytes(), kit.peak_bytes(), kit.kind, kit.has_own_memory) == (5, 7, "gpu", True)


def test_opencl_on_pocl_is_a_way_to_use_the_cpu() -> None:
    kit = kit_of("opencl")
    if isinstance(kit, str):
        pytest.skip(kit)
    assert isinstance(kit, OpenClKit) and kit.kind == "cpu" and not kit.has_own_memory
    assert kit.device_name and kit.about["platform"]

"""The clocks of a GPU: parsing of pasted output, readings of a process, what tables say."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import pytest
from bench_values import doubled, measurement, results, toy, way, with_numpy

from batchyard.bench import tables
from batchyard.bench.gpu_clocks import ClockLog, make_command, parse_clocks
from batchyard.bench.measuring import measure
from batchyard.bench.reading import from_json
from batchyard.bench.results import GpuClocks, to_json
from batchyard.bench.timing import Effort
from batchyard.bench.trials import Bench

#: of a T4 that becomes hot: nvidia-smi --query-gpu=clocks.sm,clocks.max.sm
#: --format=csv,noheader,nounits --loop-ms=150
PASTED = """585, 1590
1590, 1590
1590, 1590
1380, 1590
"""


def test_pasted_output() -> None:
    assert parse_clocks(PASTED) == GpuClocks(1485.0, 585.0, 1590.0, 4)


@pytest.mark.parametrize(
    ("text", "clocks"),
    [
        ("", None),
        ("No devices were found\n", None),
        ("[N/A], [N/A]\n", None),
        ("1410, [N/A]\n", GpuClocks(1410.0, 1410.0, 0.0, 1)),
        # The last line is still being written.
        ("1410, 1980\n19", GpuClocks(1410.0, 1410.0, 1980.0, 1)),
        ("141", None),
    ],
)
def test_lines_that_are_no_readings(text: str, clocks: GpuClocks | None) -> None:
    assert parse_clocks(text) == clocks


def test_the_gpu_that_is_measured_is_asked() -> None:
    assert "--id=0" in make_command({})
    assert "--id=GPU-8f6d" in make_command({"CUDA_VISIBLE_DEVICES": "GPU-8f6d,3"})
    assert "--query-gpu=clocks.sm,clocks.max.sm" in make_command({})


def test_readings_belong_to_the_operation_that_ran_meanwhile() -> None:
    script = "import time; print(PASTED, end='', flush=True); time.sleep(600)"
    log = ClockLog([sys.executable, "-c", script.replace("PASTED", repr(PASTED))])
    try:
        deadline_s = time.monotonic() + 300
        while log.since(0) != parse_clocks(PASTED):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        assert log.since(log.position()) is None
    finally:
        log.close()


def test_without_nvidia_smi_there_are_no_readings() -> None:
    log = ClockLog(["no-such-program"])
    bench = Bench(with_numpy(), Effort(2, 4, 0.0), gpu_clocks=log)
    assert measure(toy(way("double", doubled)), 8, bench).gpu_clocks is None
    log.close()


def test_a_measurement_has_the_clocks_of_its_time() -> None:
    class Log(ClockLog):
        def position(self) -> int:
            return 17

        def since(self, position: int) -> GpuClocks | None:
            return GpuClocks(float(position), 1.0, 2.0, 3)

    log = Log(["no-such-program"])
    bench = Bench(with_numpy(), Effort(2, 4, 0.0), gpu_clocks=log)
    assert measure(toy(way("double", doubled)), 8, bench).gpu_clocks == GpuClocks(17.0, 1.0, 2.0, 3)
    log.close()


def test_the_table_shows_the_clock_and_warns_of_a_slow_one() -> None:
    fast = measurement(gpu_clocks=GpuClocks(1590.0, 1500.0, 1590.0, 9))
    slow = measurement(size=2, gpu_clocks=GpuClocks(600.0, 585.0, 1590.0, 9))
    value = results("gpu", fast, slow)
    text = tables.run_text(value)
    assert "1590 of 1590 MHz\n" in text and "600 of 1590 MHz !" in text
    assert "in 1 of 2 the GPU's clock was below 75 %" in text
    assert "GPU clock" not in tables.run_text(results())
    assert from_json(to_json(value), "x") == value
    older = to_json(replace(value, measurements=(replace(fast, gpu_clocks=None),)))
    older = older.replace('"gpu_clocks": null,', "")
    assert from_json(older, "x").measurements[0].gpu_clocks is None

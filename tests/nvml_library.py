"""A small library in the place of NVIDIA's NVML, for machines without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FIRST_UUID = "GPU-11111111-aaaa-bbbb-cccc-000000000001"
SECOND_UUID = "GPU-22222222-aaaa-bbbb-cccc-000000000002"
MIG_UUID = "MIG-33333333-aaaa-bbbb-cccc-000000000003"

#: Two GPUs and a part of one. The second GPU is lost once a file `lost` is beside the library.
_SOURCE = f"""
#include <string.h>
#include <unistd.h>
#ifndef INIT_CODE
#define INIT_CODE 0
#endif
int nvmlInit_v2(void) {{ return INIT_CODE; }}
#ifndef ONLY_INIT
struct device {{ const char *uuid; unsigned percent; unsigned long long used, total; }};
static struct device devices[] = {{
  {{"{FIRST_UUID}", 70, 6000, 16384}}, {{"{SECOND_UUID}", 30, 9000, 16384}},
  {{"{MIG_UUID}", 0, 1500, 4864}} }};
static int is_lost(struct device *d) {{ return d == devices + 1 && !access(LOST, F_OK); }}
int nvmlDeviceGetCount_v2(unsigned *count) {{ *count = 2; return 0; }}
int nvmlDeviceGetHandleByIndex_v2(unsigned n, struct device **d) {{
  if (n > 1) return 2;
  *d = devices + n; return 0; }}
#ifndef WITHOUT_UUIDS
int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **d) {{
  for (int n = 0; n < 3; n++)
    if (!strcmp(uuid, devices[n].uuid)) {{ *d = devices + n; return 0; }}
  return 6; }}
int nvmlDeviceGetUUID(struct device *d, char *text, unsigned length) {{
  if (length <= strlen(d->uuid)) return 7;
  strcpy(text, d->uuid); return 0; }}
#endif
int nvmlDeviceGetUtilizationRates(struct device *d, unsigned *rates) {{
  if (is_lost(d)) return 15;
  if (d == devices + 2) return 3;
  rates[0] = d->percent; rates[1] = 1; return 0; }}
int nvmlDeviceGetMemoryInfo(struct device *d, unsigned long long *memory) {{
  if (is_lost(d)) return 15;
  memory[0] = d->total << 20; memory[1] = (d->total - d->used) << 20; memory[2] = d->used << 20;
  return 0; }}
#endif
"""


def build_library(folder: Path, *flags: str) -> Path:
    """Compile the library in the folder, and return its path."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    library = folder / "libnvidia-ml.so.1"
    lost = f'-DLOST="{folder / "lost"}"'
    subprocess.run(
        ["gcc", "-shared", "-fPIC", lost, *flags, "-x", "c", "-", "-o", str(library)],
        input=_SOURCE.encode(),
        check=True,
    )
    return library

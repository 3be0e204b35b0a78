"""The direction of imports, held by walking them: docs/design.md, "The rooms"."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import batchyard

ROOT = Path(batchyard.__file__).parent

#: the user's side: values, and functions of them
PURE = (
    "quick_dataclasses",
    "errors",
    "units",
    "json_fields",
    "yaml_positions",
    "pipeline",
    "pipeline_file",
    "plan",
    "paired_children",
    "shard",
    "blocks",
    "child_patterns",
    "command_lengths",
    "folder",
    "line_files",
    "s3_layout",
    "ec2_types",
    "ec2_prices",
    "cost_cap",
    "sampling.samples",
)
#: room -> the rooms and modules of ours that it may import; itself is understood
MAY_IMPORT: dict[str, tuple[str, ...] | None] = {
    **{room: (*PURE, "batch.jobs", "batch.limits") for room in PURE if "." not in room},
    "quick_dataclasses": (),
    "errors": ("quick_dataclasses",),
    "ec2_types": ("batch.hosts", "batch.jobs"),
    "yaml_positions": ("errors", "units"),
    "cfn_yaml": (),
    "cfn_conditions": (),
    "batch": ("errors", "quick_dataclasses"),
    "environments": ("batch.limits", *PURE),
    # the worker has a copy of it
    "sampling": (),
    "embedded": ("batch", "sampling", *PURE),
    "engines": (
        *("embedded", "batch", "aws", "images", "environments"),
        # what the engine and the worker agree on
        *("worker.errors", "worker.globs", "worker.headings", "worker.leases", "worker.rules"),
        "worker.scale",
        *PURE,
    ),
    "runs": ("engines", *PURE),
    "cost": ("aws", "engines.base", "engines.usage", "earlier_runs", "batch.jobs", *PURE),
    "command_texts": ("engines", *PURE),
    "command_records": ("command_texts", "status", "engines", *PURE),
    "status": ("command_texts", "engines", "batch", *PURE),
    "earlier_runs": ("runs", "engines", *PURE),
    "planned_commands": ("command_texts", "status", "engines", "batch", *PURE),
    "operations": (
        *("cost", "planned_commands", "earlier_runs", "runs", "supervision", "engines"),
        *PURE,
    ),
    "supervision": ("engines", "cost", "batch.jobs", *PURE),
    "api": ("operations", "supervision", "command_records", "status", "engines", "cost", *PURE),
    "progress": ("status", *PURE),
    "wait_reasons": ("engines", "batch.jobs", *PURE),
    "report": ("status", "engines", "batch", "cost", *PURE),
    "diagnosis": ("doctor", "aws", "engines.base", *PURE),
    "ui": (
        "diagnosis",
        *("report", "operations", "status", "progress", "wait_reasons", "command_texts", "runs"),
        "cost",
        *("engines.base", "batch.jobs"),
        *PURE,
    ),
    "emulator": ("embedded", "batch", "cfn_yaml", "cfn_conditions", *PURE),
    "infra": (
        *("aws", "environments", "cfn_yaml", "cfn_conditions"),
        *PURE,
    ),
    "services": ("infra", "aws", "environments", *PURE),
    "service_api": ("services", "infra", "images", "aws", *PURE),
    "doctor": ("aws", "batch.hosts", "batch.jobs", "batch.limits", *PURE),
    # cfn-lint imports it
    "cfn_lint_rules": ("doctor", "errors"),
    "bench": ("report", "batch.hosts", *PURE),
    "benchmark_runs": (
        *("operations", "engines", "embedded.machine", "bench", "aws", "environments"),
        *PURE,
    ),
    # it runs where nothing else of ours is installed
    "worker": (
        *("quick_dataclasses", "service_models"),
        *("blocks", "shard", "child_patterns", "s3_layout", "sampling"),
    ),
    "service_models": (),
    "aws": ("environments", "batch.limits", "service_models", *PURE),
    "submissions": (
        "aws.batch",
        "aws.submit_job",
        "engines.base",
        "engines.busy_service",
        "batch.limits",
        "batch.validation",
        *PURE,
    ),
    "images": ("embedded.docker", "aws", "environments", *PURE),
    # the top: everything else
    "__main__": ("cli",),
    "cli": None,
}
#: library -> the only rooms that may import it
LIBRARIES = {
    "boto3": ("aws", "worker", "emulator"),
    "botocore": ("aws", "worker", "emulator"),
    "click": ("cli",),
    "rich": ("cli",),
    "moto": ("emulator",),
    "yaml": ("yaml_positions", "cfn_yaml", "pipeline_file", "emulator", "doctor", "environments"),
    "sqlite3": ("embedded",),
}


def name_of(path: Path) -> str:
    parts = ("batchyard", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache
def imports(module: str) -> set[str]:
    """The full names of the modules that it imports, wherever the statement stands."""
    return find_imports(module, walk_statements(tree_of(module)))


@cache
def imports_at_once(module: str) -> set[str]:
    """Those of its own top level: what happens when the module is imported."""
    return find_imports(module, iter(tree_of(module).body))


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def walk_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements of a module: expressions have no imports, and are most of its nodes."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, name, ()) if not isinstance(tree, ast.expr) else ():
            yield node
            yield from walk_statements(node)


def find_imports(module: str, nodes: Iterator[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import, which this test cannot follow"
            assert node.module is not None
            # `from batchyard import plan` imports a module, `from batchyard.plan import Plan` not.
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found


def room_of(module: str) -> str:
    return [*module.split("."), ""][1]


def is_in(module: str, room: str) -> bool:
    return f"{module}.".startswith(f"batchyard.{room}.")


def test_the_walk_finds_what_is_imported() -> None:
    assert "batchyard.batch.jobs" in imports("batchyard.plan")
    assert "batchyard.shard" in imports("batchyard.plan")  # from batchyard import shard
    assert "click" in imports("batchyard.cli.main")


def test_the_table_has_every_room_and_no_other() -> None:
    rooms = {room_of(module) for module in MODULES} - {""}
    assert set(MAY_IMPORT) == rooms


@pytest.mark.parametrize("room", [room for room in MAY_IMPORT if room != "cli"])
def test_a_room_imports_only_what_is_below_it(room: str) -> None:
    wrong = [
        f"{module} imports {imported}"
        for module in MODULES
        if is_in(module, room)
        for imported in sorted(imports(module))
        if imported.startswith("batchyard.")  # the package itself has only its version
        if not any(is_in(imported, allowed) for allowed in (room, *(MAY_IMPORT[room] or ())))
    ]
    assert wrong == []


def test_nothing_below_it_imports_the_command_line() -> None:
    importers = [
        module for module in MODULES if any(is_in(name, "cli") for name in imports(module))
    ]
    assert [module for module in importers if room_of(module) not in ("cli", "__main__")] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_imported_only_in_its_rooms(library: str) -> None:
    importers = [m for m in MODULES if any(name.split(".")[0] == library for name in imports(m))]
    assert [module for module in importers if room_of(module) not in LIBRARIES[library]] == []


def test_no_module_imports_itself_in_a_ring() -> None:
    graph = {module: imports_at_once(module) & set(MODULES) - {module} for module in MODULES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


# -- what is loaded --


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after the statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_command_starts_without_yaml_sqlite_rich_or_an_engine() -> None:
    loaded = loaded_by("import batchyard.cli.main")
    assert "batchyard.cli.main" in loaded
    assert loaded.isdisjoint({"yaml", "sqlite3", "rich", "boto3", "asyncio"})
    assert [name for name in loaded if is_in(name, "engines") or is_in(name, "batch")] == []


def test_the_package_itself_loads_nothing_of_ours() -> None:
    assert {name for name in loaded_by("import batchyard") if name.startswith("batchyard")} == {
        "batchyard"
    }


def test_the_rules_of_batch_load_no_library_and_nothing_that_could_act() -> None:
    loaded = loaded_by("import batchyard.batch.scheduler")
    assert loaded.isdisjoint({"sqlite3", "subprocess", "socket", "yaml", "click", "asyncio"})


def test_the_local_engine_loads_nothing_about_aws() -> None:
    loaded = loaded_by("import batchyard.engines.local, batchyard.operations")
    assert loaded.isdisjoint({"batchyard.environments", "batchyard.s3_layout", "boto3", "difflib"})


#: Modules that are slow to import, and that a short command on this machine does not need.
SLOW = {
    *(
        "asyncio",
        "boto3",
        "concurrent.futures",
        "difflib",
        "email",
        "http.client",
        "importlib.metadata",
    ),
    *("logging", "multiprocessing", "rich", "shutil", "socket", "ssl", "subprocess", "tempfile"),
    *("traceback", "unittest", "urllib.request", "xml", "yaml", "zipfile"),
}


def loaded_by_command(folder: Path, *arguments: str) -> set[str]:
    """The modules that a process has loaded when its command is over."""
    (folder / "list.txt").write_text("/bin/true\n")
    script = f"""
import os, sys
os.chdir({str(folder)!r})
sys.stdout = sys.stderr
from batchyard.cli.main import main
try:
    main({list(arguments)!r})
except SystemExit as exc:
    assert exc.code == 0, exc.code
sys.stdout = sys.__stdout__
"""
    return loaded_by(script)


def slow_dataclasses(loaded: set[str]) -> list[str]:
    """Loaded modules of ours with dataclasses that are compiled when the module is imported."""
    return sorted(
        module
        for module in loaded & set(MODULES) - {"batchyard.quick_dataclasses"}
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(alias.name == "dataclass" for alias in node.names)
    )


def test_a_short_run_and_its_status_load_nothing_that_is_slow(tmp_path: Path) -> None:
    by_python = loaded_by("")  # more in some locales and on some systems
    run = loaded_by_command(tmp_path, "run", "list.txt")
    assert "batchyard.embedded.loop" in run
    assert (run & SLOW, slow_dataclasses(run)) == (set(), [])
    assert len(run - by_python) <= 192

    status = loaded_by_command(tmp_path, "status", "last")
    assert "batchyard.embedded.store" in status
    assert (status & SLOW, slow_dataclasses(status)) == (set(), [])
    assert [name for name in status if is_in(name, "engines.aws") or is_in(name, "aws")] == []
    assert status.isdisjoint({"batchyard.embedded.loop", "batchyard.batch.scheduler", "ctypes"})
    assert status.isdisjoint({"batchyard.cli.run", "batchyard.engines.local.preparing"})
    assert len(status - by_python) <= 140


def test_the_version_loads_the_command_line_alone(tmp_path: Path) -> None:
    loaded = loaded_by_command(tmp_path, "--version")
    ours = {name for name in loaded if name.startswith("batchyard.")}
    assert ours <= {
        *("batchyard.cli", "batchyard.cli.main"),
        *("batchyard.errors", "batchyard.quick_dataclasses"),
    }
    assert loaded & SLOW == set()


def test_deploy_loads_no_engine_and_no_scheduler() -> None:
    """Without a region `deploy` fails after it has loaded everything that it needs."""
    script = """
import os
os.environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
os.environ |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"}
from batchyard.cli.main import main
try:
    main(["deploy", "--env", "dev"])
except SystemExit as exc:
    assert exc.code == 2, exc.code
"""
    loaded = loaded_by(script)
    assert {"batchyard.cli.deploy", "batchyard.infra.stacks", "boto3"} <= loaded
    rooms = ("engines", "embedded", "batch", "runs", "status")
    values = {f"batchyard.batch{module}" for module in ("", ".limits", ".jobs", ".hosts")}
    assert {name for name in loaded for room in rooms if is_in(name, room)} <= values

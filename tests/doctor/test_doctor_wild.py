"""The doctor on published templates and scripts, none of which it was made with.

The packages are fetched when the test runs, each by its hash, into .cache/wild; nothing of them is
stored here. With BATCHYARD_REQUIRE_WILD=1 a registry that cannot be reached is a failure, otherwise
the tests are skipped.

An oracle that knows nothing of shells says what must be found: it searches for starts and restarts
line by line. Few people publish scripts that start ecs or docker, so the scripts are also read with
every started service renamed: their style, with our deadlock in it. A line that the oracle sees and
the doctor does not report must be excluded by a rule below.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchyard.doctor import show
from batchyard.doctor.finding import Report
from batchyard.doctor.template.examine import examine as examine_template
from batchyard.doctor.userdata.examine import examine as examine_user_data
from batchyard.errors import InputError

pytestmark = [pytest.mark.slow, pytest.mark.outside]

REQUIRED = os.environ.get("BATCHYARD_REQUIRE_WILD") == "1"
CACHE = Path(__file__).parents[2] / ".cache" / "wild"
PYPI = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
NPM = (
    os.environ.get("NPM_CONFIG_REGISTRY")
    or os.environ.get("npm_config_registry")
    or "https://registry.npmjs.org"
)
MAX_BYTES = 1_000_000
#: none takes as long as this, on any machine
MAX_S = 20


@dataclass(frozen=True)
class Package:
    name: str
    file: str
    sha256: str

    @property
    def is_npm(self) -> bool:
        return self.file.endswith(".tgz")


PACKAGES = [
    Package(
        "cfn-lint",
        "cfn_lint-1.58.0.tar.gz",
        "ba02cd7f7e06c8bc160936051a03ec931af52943fcc9cc72ad2748caa0f2a103",
    ),
    Package(
        "cloudknot",
        "cloudknot-0.6.1.tar.gz",
        "c2503c99ab62bf44c462e09bb86408be9242c2bf82d19ddd5775c3849d2ad329",
    ),
    Package(
        "aegea",
        "aegea-4.5.3.tar.gz",
        "1f27d48a8de6620e78ce88e4b1f038912dd370b4def004ad6e658ec47448bc32",
    ),
    Package(
        "tibanna",
        "tibanna-6.1.0.tar.gz",
        "a14a92e31d8e345df869d1e5fe03b6983e6c220e4daf1288285ece8d08c09dde",
    ),
    Package(
        "aws-parallelcluster",
        "aws_parallelcluster-3.16.1.tar.gz",
        "31b1d1bd3a01a75c683521b37c17d1f96786106962a9169a2561b345aac822a9",
    ),
    Package(
        "dask-cloudprovider",
        "dask_cloudprovider-2025.9.0.tar.gz",
        "0026c5ab15ff37411b852804ed5c5bc651bed78b34fb517a9f056bdcf5bc5253",
    ),
    Package(
        "skypilot",
        "skypilot-0.14.1.tar.gz",
        "60c6d38e68999d67f9294f87e30808787caad682bd93274136a261f3606fac8d",
    ),
    Package(
        "magnum",
        "magnum-23.0.0.tar.gz",
        "1fefec2aef5736ae1d181b9e9c7ba00a7a53ae7cd632ef20d219bf97b9750f5a",
    ),
    Package(
        "kolla-ansible",
        "kolla_ansible-23.0.0.tar.gz",
        "213de150825e750829ab30e6655726626f2c6b57be06e6cc4716ae67eb364b7a",
    ),
    Package(
        "diskimage-builder",
        "diskimage_builder-3.43.0.tar.gz",
        "a0e71b53c62e9f91dfa29a19118b4f44f6c9ddbf490ce51700234f950d1d70df",
    ),
    Package(
        "octavia",
        "octavia-19.0.0.tar.gz",
        "accaa633297c9994439a060e8b786c336fe549bfee6c7314663b514f59a81004",
    ),
    Package(
        "trove",
        "trove-26.0.0.tar.gz",
        "96401d646c52b9f5669669a6a6a91d3b7b9ef434266ef8827f9f9bcded4554fe",
    ),
    Package(
        "sahara-image-elements",
        "sahara-image-elements-19.0.0.tar.gz",
        "3121e72d9fd8d2a110aeb2dc0392bd202c0ab4a444d336e710e7cedc19a25eda",
    ),
    Package(
        "tripleo-image-elements",
        "tripleo-image-elements-15.0.0.tar.gz",
        "667c581c6a0fc193a475207cea24a4af8ddb2464929dc333e36391afcbd84e6b",
    ),
    Package(
        "monasca-api",
        "monasca-api-11.0.0.tar.gz",
        "e5071f7392aa9fad6d4f5dd9add5b0e09cb663a63532e1effa783107d29690f3",
    ),
    Package(
        "zaqar",
        "zaqar-23.0.1.tar.gz",
        "ceba22df8c40c8a76001de446ba1c713fd2f0c5ab92a159d0ac6ef5a64f64284",
    ),
    Package(
        "networking-ovn",
        "networking-ovn-7.4.1.tar.gz",
        "71966746e2f566db98d1061482c6526ee8e8f7c6fa53bf4432e7dcfff1ee250e",
    ),
    Package(
        "openstack-heat",
        "openstack_heat-27.0.1.tar.gz",
        "65eac7175938a3f38e7e4990ebf52aa8641a1d52f4190ea795c5872d014154b6",
    ),
    Package(
        "zun",
        "zun-18.0.0.tar.gz",
        "6c98503fd39304f120e26aec3c0ad70c4ca0747e48fa0d1c21d2800f8ba64ceb",
    ),
    Package(
        "@aws-cdk/aws-ecs",
        "aws-ecs-1.60.0.tgz",
        "2b912d45aa07b0d9dd0c97489c98bf687964a60f2018db2209308f7dd0076a32",
    ),
    Package(
        "@aws-cdk/aws-ecs-patterns",
        "aws-ecs-patterns-1.60.0.tgz",
        "f03b6409795038d282db6515de633b6140c9a657587ee5bbdde9cdc87090aed8",
    ),
    Package(
        "@aws-cdk/aws-autoscaling",
        "aws-autoscaling-1.60.0.tgz",
        "ab138fa866fd897949ff856a4b370135498de913656b800af41b7519ce1306a2",
    ),
    Package(
        "@aws-cdk/aws-batch",
        "aws-batch-1.60.0.tgz",
        "02cad129fa5a7f19044feb8b7a623636d3390671759d0a5a53d38fdce5b58ebe",
    ),
    Package(
        "@cfn-modules/asg-singleton-amazon-linux2",
        "asg-singleton-amazon-linux2-2.4.0.tgz",
        "57a563ce9f21b2d912acb588ba98bbc0ff150404061c8e7de2bb07d10962aaa5",
    ),
    Package(
        "@mapbox/cloudfriend",
        "cloudfriend-9.4.3.tgz",
        "3660399ed243a7679128d2c2c83763c87dc9bb835a394c8c9642feb25afbfc1d",
    ),
]


# -- the files ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wild:
    name: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def fetched(package: Package) -> bytes:
    kept = CACHE / package.file
    if not kept.exists() or hashlib.sha256(kept.read_bytes()).hexdigest() != package.sha256:
        data = download(address(package))
        assert hashlib.sha256(data).hexdigest() == package.sha256, (
            f"{package.file} is not what it was"
        )
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
        fresh.write_bytes(data)
        fresh.replace(kept)
    return kept.read_bytes()


def address(package: Package) -> str:
    if package.is_npm:
        return f"{NPM.rstrip('/')}/{package.name}/-/{package.file}"
    page = f"{PYPI.rstrip('/')}/{package.name}/"
    links = re.findall(r'href="([^"#]+)', download(page).decode("utf-8", "replace"))
    return next(
        urllib.parse.urljoin(page, link) for link in links if link.endswith("/" + package.file)
    )


def download(url: str) -> bytes:
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"Accept": "text/html, */*"}), timeout=300
    ) as answer:
        data: bytes = answer.read()
    return data


def unpacked(archive: bytes) -> Iterator[Wild]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for member in packed:
            if member.isfile() and member.size <= MAX_BYTES:
                inside = packed.extractfile(member)
                assert inside is not None
                yield Wild(member.name, inside.read())


def is_template(file: Wild) -> bool:
    is_named_so = file.name.endswith((".json", ".yaml", ".yml", ".template"))
    return is_named_so and bool(re.search(rb'(?m)^\s*"?Resources"?\s*:', file.data))


def is_script(file: Wild) -> bool:
    head = file.data[:200]
    is_marked = re.match(
        rb"\s*(?:#!.*\b(?:ba|da|k|z)?sh\b|#cloud-|MIME-Version:|Content-Type: multipart"
        rb"|## template:)",
        head,
    )
    return bool(is_marked) or file.name.endswith(".sh")


@pytest.fixture(scope="module")
def wild() -> list[Wild]:
    try:
        archives = [fetched(package) for package in PACKAGES]
    except (OSError, StopIteration) as exc:
        refuse = pytest.fail if REQUIRED else pytest.skip
        refuse(f"the package registries cannot be reached, or lack a package: {exc}")
    return [file for archive in archives for file in unpacked(archive)]


@pytest.fixture(scope="module")
def templates(wild: list[Wild]) -> list[Wild]:
    return [file for file in wild if is_template(file)]


@pytest.fixture(scope="module")
def scripts(wild: list[Wild]) -> list[Wild]:
    return [file for file in wild if is_script(file)]


# -- no crash -------------------------------------------------------------------------------------


def check(report: Report, began: float) -> None:
    assert report.exit_code in (0, 1, 2)
    assert all(finding.cause and finding.evidence and finding.remedy for finding in report.findings)
    assert show.to_lines(report, with_all=True)[0]
    assert time.process_time() - began < MAX_S


def test_every_template_is_examined_or_refused_in_words(templates: list[Wild]) -> None:
    examined = 0
    for file in templates:
        began = time.process_time()
        try:
            check(examine_template(file.data, file.name), began)
            examined += 1
        except InputError as exc:
            assert exc.message.startswith(file.name) and exc.hint
    print(f"{len(templates)} templates, {examined} of them examined")
    assert examined > 330


def test_every_script_is_examined(scripts: list[Wild]) -> None:
    for file in scripts:
        for owner in ("batch", "ecs"):
            began = time.process_time()
            check(examine_user_data(file.data, file.name, owner), began)
    print(f"{len(scripts)} scripts")
    assert len(scripts) > 250


def test_some_through_the_command_itself(
    templates: list[Wild], scripts: list[Wild], tmp_path: Path
) -> None:
    chosen = [("template", file) for file in templates[:: len(templates) // 3]]
    chosen += [("userdata", file) for file in scripts[:: len(scripts) // 3]]
    for word, file in chosen:
        path = tmp_path / Path(file.name).name
        path.write_bytes(file.data)
        command = [sys.executable, "-m", "batchyard", "doctor", word, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode in (0, 1, 2), done.stderr
        assert (done.stdout or done.stderr).strip() and "Traceback" not in done.stderr


# -- every blocking start -------------------------------------------------------------------------

_UNIT = r"(?<![\w./-])(?:ecs|docker)(?:\.service)?(?![\w.-])"
ORACLE = [
    re.compile(
        r"\bsystemctl\b[^;&|]*?\b(?:start|restart|try-restart|reload-or-restart|condrestart)\b"
        rf"[^;&|]*?{_UNIT}"
    ),
    re.compile(rf"\bsystemctl\b(?=[^;&|]*--now)[^;&|]*?\b(?:enable|reenable)\b[^;&|]*?{_UNIT}"),
    re.compile(rf"\b(?:service|invoke-rc\.d)\s+(?:-\S+\s+)*{_UNIT}\s+(?:start|restart)\b"),
    re.compile(r"/init\.d/(?:ecs|docker)\s+(?:start|restart)\b"),
    re.compile(
        r"(?:^|[;&|(`\"'\s]|/sbin/)(?:initctl\s+)?(?:start|restart)\s+(?:ecs|docker)(?![\w./-])"
    ),
]
_NAME = r"[\"']?[\w$@{][\w$@{}.:-]*[\"']?(?![\w(])"
RENAMED = [
    (
        re.compile(
            r"(\bsystemctl[ \t]+(?:-\S+[ \t]+)*"
            r"(?:start|restart|try-restart|reload-or-restart|enable[ \t]+--now)[ \t]+)(?!-)" + _NAME
        ),
        r"\1ecs",
    ),
    (re.compile(rf"(\bservice[ \t]+){_NAME}([ \t]+(?:start|restart)\b)"), r"\1ecs\2"),
    (re.compile(rf"(/etc/init\.d/){_NAME}([ \t]+(?:start|restart)\b)"), r"\1ecs\2"),
    (
        re.compile(rf"(\binvoke-rc\.d[ \t]+(?:-\S+[ \t]+)*){_NAME}([ \t]+(?:start|restart)\b)"),
        r"\1ecs\2",
    ),
]


def renamed(text: str) -> str:
    for form, instead in RENAMED:
        text = form.sub(instead, text)
    return text


def seen_by_oracle(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if any(form.search(line) for form in ORACLE):
            yield number, line.strip()


def excluded(text: str, number: int, line: str) -> str:
    """Return the rule by which a line does not block the boot; empty if there is none."""
    lines = text.split("\n")
    above = lines[: number - 1]
    if line.startswith(("#", "//")) or re.search(
        r"(?<!\$)#.*(?:start|restart)", line.split("systemctl")[0]
    ):
        return "a comment"
    if "--no-block" in line or re.search(r"&\s*$", line) or "--user" in line:
        return "it does not wait, or is a user's own service"
    if re.search(
        r"\b(?:echo|printf|log|warn|die|msg)\b.*(?:start|restart)|=[\"'].*(?:start|restart)", line
    ):
        return "text that is printed or kept"
    if re.search(r"\bssh\b|\bdocker\s+(?:re)?start\b", line):
        return "on another machine, or a container"
    if _in_heredoc(above) or _in_quotes(above):
        return "written to a file that nothing runs here"
    if (name := _function_around(above)) and not _is_called(lines, name):
        return "in a function that nothing calls here"
    return ""


def _in_heredoc(above: list[str]) -> bool:
    ends: list[str] = []
    for line in above:
        if ends:
            if line.strip() == ends[-1]:
                ends.pop()
        elif match := re.search(r"<<-?\s*[\"'\\]?(\w+)", line):
            ends.append(match[1])
    return bool(ends)


def _in_quotes(above: list[str]) -> bool:
    """Return whether an odd number of quotes is above; comments and escaped quotes do not count."""
    return (
        sum(re.sub(r"(?:^|\s)#.*|\\.|\"[^\"]*\"", "", line).count("'") for line in above) % 2 == 1
    )


def _function_around(above: list[str]) -> str:
    for line in reversed(above):
        if line.startswith("}"):
            return ""
        if match := re.match(r"(?:function\s+)?([\w:.-]+)\s*(?:\(\s*\))?\s*\{", line):
            return match[1]
        if match := re.match(r"(?:function\s+)?([\w:.-]+)\s*\(\s*\)\s*$", line):
            return match[1]
    return ""


def _is_called(lines: list[str], name: str, depth: int = 0) -> bool:
    """Where a command may stand, outside of all functions, or in one that is called itself."""
    call = re.compile(
        r"(?:^|[;&|({]|\b(?:then|do|else|if|while|until|trap)\b|!)\s*[\"']?"
        rf"{re.escape(name)}(?![\w(-]|\s*\()"
    )
    for at, line in enumerate(lines):
        if call.search(line) and not re.match(r"\s*(?:#|function\b)", line):
            outer = _function_around(lines[:at])
            if not outer or (outer != name and depth < 5 and _is_called(lines, outer, depth + 1)):
                return True
    return False


def lines_of(report: Report) -> set[int]:
    """Where starts were found; the lines of helpers and of their callers, whoever is named."""
    found = [finding for finding in report.findings if finding.id == "BY101"]
    return {int(match[1]) for finding in found if (match := re.match(r"x:(\d+)", finding.place))}


def missed(text: str, report: Report) -> list[str]:
    found = lines_of(report)
    return [
        f"line {number}: {line[:120]}"
        for number, line in seen_by_oracle(text)
        if number not in found and not excluded(text, number, line)
    ]


@pytest.mark.parametrize(
    ("how", "floor"), [(str, 3), (renamed, 24)], ids=["as they are", "with their services renamed"]
)
def test_every_start_in_a_script_is_found_or_excluded_by_a_rule(
    how: type[str], floor: int, scripts: list[Wild]
) -> None:
    misses, seen, found = [], 0, 0
    for file in scripts:
        text = how(file.text)
        if hits := list(seen_by_oracle(text)):
            report = examine_user_data(text.encode(), "x", "ecs")
            misses += [f"{file.name} {miss}" for miss in missed(text, report)]
            seen += len(hits)
            found += len({number for number, _ in hits} & lines_of(report))
    print(f"{seen} lines seen by the oracle, {found} found")
    assert misses == []
    assert found >= floor


def test_every_start_in_a_template_is_found_or_excluded_by_a_rule(templates: list[Wild]) -> None:
    misses, seen = [], 0
    for file in templates:
        text = renamed(file.text)
        if hits := list(seen_by_oracle(text)):
            misses += [
                f"{file.name} {miss}" for miss in missed(text, examine_template(text.encode(), "x"))
            ]
            seen += len(hits)
    print(f"{seen} lines seen by the oracle")
    assert misses == []
    assert seen >= 8


def test_the_oracle_and_its_rules_do_what_they_say() -> None:
    text = (
        "systemctl restart docker\n# start ecs\necho start ecs\n"
        "f() {\n  service ecs start\n}\nstart docker &\n"
    )
    seen = [(number, excluded(text, number, line)) for number, line in seen_by_oracle(text)]
    assert seen[0] == (1, "")
    assert [number for number, _ in seen] == [1, 2, 3, 5, 7] and all(why for _, why in seen[1:])
    called = text.replace("# start ecs", "f")
    assert excluded(called, 5, "service ecs start") == ""
    assert (
        renamed("systemctl enable --now httpd\nservice $NAME restart\n")
        == "systemctl enable --now ecs\nservice ecs restart\n"
    )

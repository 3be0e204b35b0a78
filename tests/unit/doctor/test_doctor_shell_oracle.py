"""Compare the doctor with bash: the commands that bash runs in a script must be found.

Scripts are put together at random from harmless pieces and run by bash, with a `systemctl`,
`service` and `start` that only record their calls. A recorded call that waits must be a finding;
a script in which nothing can wait must have none.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchyard.doctor.userdata.examine import examine

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")

RECORDER = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
"""
WRAPPER = """#!/bin/sh
[ "$1" = -E ] && shift
exec "$@"
"""

BLOCKING = st.sampled_from(
    [
        "systemctl restart docker",
        "systemctl start ecs.service",
        "systemctl enable --now ecs",
        "service docker restart",
        "start ecs",
        "sudo systemctl restart docker",
        'systemctl restart "$UNIT"',
        "service $UNIT start",
        '"${COMMAND[@]}"',
    ]
)
HARMLESS = st.sampled_from(
    [
        "systemctl restart --no-block docker",
        "systemctl enable ecs",
        "systemctl restart sshd",
        "echo systemctl restart docker",
        ": 'systemctl restart docker'",
        "# systemctl restart docker",
        "cat > note.txt <<'NOTE'\nsystemctl restart docker\nNOTE",
        "UNIT=sshd",
        "true",
        "false",
        "x=$(echo one)",
        "[[ -n $x && $x != two ]]",
        "(( 1 < 2 ))",
    ]
)
#: ways to run a command: {} as it is, {q} quoted, {packed} in base64, {first} and {rest} apart
WAYS = [
    "for x in $({}); do :; done",
    "case $({}) in a) : ;; esac",
    "arr=( $({}) )",
    ": ${{NOTHING:-$({})}}",
    ': "${{NOTHING:-`{}`}}"',
    ": $(( $({}; echo 1) + 1 ))",
    "(( $({}; echo 1) ))",
    "cat <<END\n$({})\nEND",
    'cat <<< "$({})"',
    "x=$({} &)",
    ". <(echo {q})",
    "bash <(echo {q})",
    ". /dev/stdin <<< {q}",
    "dd of=d.sh 2> /dev/null <<< {q}; bash d.sh",
    "echo {packed} | base64 -d | bash",
    "base64 -d <<< {packed} > p.sh; . ./p.sh",
    "echo {q} | sed s/nothing/else/ | sort | sh",
    'set -- {}; "$@"',
    "set -- {}; for word; do all+=($word); done; ${{all[@]}}",
    """bash -c '"$@"' _ {}""",
    """bash -c '$0 "$@"' {}""",
    """bash -s -- {} <<< '"$@"'""",
    "DO={q} bash -c '$DO'",
    ": ${{DO:={}}}; $DO",
    "env -S {q}",
    "echo {q} | xargs -I X sh -c X",
    "echo {rest} | xargs {first}",
    "find . -maxdepth 0 -exec {} \\;",
    "trap -- {q} EXIT",
    "printf -v DO '%s %s' {first} {rest_q}; $DO",
    "DO={first}.sh; ${{DO%.sh}} {rest}",
    "DO=x{first}; ${{DO/x/}} {rest}",
    "$(echo {first}) {rest}",
    "mapfile -t lines <<< {q}; ${{lines[0]}}",
    "read -r one two <<< {q}; $one $two",
    "declare -A m=([a]={first}); ${{m[a]}} {rest}",
    "mkdir -p d; echo {q} > d/1.sh; for s in d/*.sh; do bash $s; done",
    "coproc {}\nwait",
    "{} & wait $!",
    "sudo -E env A=1 {}",
]
#: the same words, and nothing is run
TWINS = [
    "bash -n <<< {q}",
    "command -v {}",
    "cat <<'END'\n$({})\nEND",
    "cat <<END\n\\$({})\nEND",
    "echo '$({})'",
    "KNOWN=1; x=${{KNOWN:-$({})}}",
    """awk 'BEGIN {{ print "{}" }}'""",
    """python3 -c 'print("{}")'""",
    "echo {q} > d.txt; cat d.txt",
    "echo {packed} | base64 -d",
    "set -- {}; echo $@",
]
SETTING = st.sampled_from(
    ["UNIT=docker", "UNIT=sshd", "COMMAND=(systemctl restart docker)", "COMMAND=(true)", "true"]
)
#: functions that run what they are given
HELPERS = """again() { local n=$1; shift; for i in 1 2; do "$@" && return 0; done; }
quietly() { "$@" > /dev/null 2>&1; }
joined() { bash -c "$*"; }
skipping() { "${@:2}"; }
"""


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.sampled_from(
        [
            "if true; then\n{}\nfi",
            "if false; then :; elif true; then\n{}\nelse :; fi",
            "for i in 1 2; do\n{}\ndone",
            "for ((i = 0; i < 2; i++)); do\n{}\ndone",
            "case a in b) : ;; a|c)\n{}\n;; esac",
            "(\n{}\n)",
            "{{\n{}\n}} > /dev/null",
            "x=$(\n{}\n)",
            "echo one | while read -r line; do\n{}\ndone",
            "f() {{\n{}\n}}\nf one two",
            "function g {{\n{}\n}}\n! g",
            "true && {{\n{}\n}} || false",
            "bash <<'EOF'\n{}\nEOF",
            "cat > s.sh <<'EOF'\n{}\nEOF\nbash s.sh",
            "cat <<'EOF' > ./t.sh\n#!/bin/bash\n{}\nEOF\nchmod +x t.sh\n./t.sh",
            "cat <<'EOF' | tee u.sh > /dev/null\n{}\nEOF\n. ./u.sh",
        ]
    )
    quoted = st.sampled_from(
        ["bash -c {}", "eval {}", "trap {} EXIT", "echo {} | sh", "sudo bash -ec {}", "sh <<< {}"]
    )
    # A here-document in one with the same end would be cut short, as it would for bash.
    simple = inner.filter(lambda text: "EOF" not in text)
    return st.one_of(
        st.tuples(plain, simple).map(lambda pair: pair[0].format(pair[1])),
        st.tuples(quoted, inner).map(lambda pair: pair[0].format(shlex.quote(pair[1]))),
        st.lists(inner, min_size=2, max_size=3).map("\n".join),
    )


def _put(pair: tuple[str, str]) -> str:
    way, command = pair
    first, _, rest = command.partition(" ")
    return way.format(
        command,
        q=shlex.quote(command),
        packed=base64.b64encode(f"{command}\n".encode()).decode(),
        first=first,
        rest=rest,
        rest_q=shlex.quote(rest),
    )


CALLS = st.sampled_from(
    ["again 3", "quietly", "joined", "skipping quietly", "sudo", "sudo -E", "nice", "timeout 9"]
)
PLAIN_COMMAND = st.sampled_from(["systemctl restart docker", "service ecs start", "start ecs"])
GIVEN = st.tuples(CALLS, PLAIN_COMMAND).map(" ".join)
IN_A_WAY = st.tuples(st.sampled_from(WAYS), PLAIN_COMMAND).map(_put)
IN_NO_WAY = st.tuples(st.sampled_from(TWINS), PLAIN_COMMAND).map(_put)
SCRIPT = st.recursive(BLOCKING | GIVEN | IN_A_WAY | HARMLESS | SETTING, _wrapped, max_leaves=6)
QUIET_SCRIPT = st.recursive(HARMLESS | IN_NO_WAY, _wrapped, max_leaves=6)

often = settings(suppress_health_check=list(HealthCheck))


def called(script: str) -> list[str]:
    """What bash calls when it runs the script."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        for program, text in (
            ("systemctl", RECORDER),
            ("service", RECORDER),
            ("start", RECORDER),
            ("sudo", WRAPPER),
        ):
            (folder / "bin" / program).write_text(text)
            (folder / "bin" / program).chmod(0o755)
        (folder / "script.sh").write_text(script)
        environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "CALLS": str(folder / "calls"),
            "HOME": name,
        }
        subprocess.run(
            ["bash", "script.sh"],
            cwd=folder,
            env=environment,
            timeout=300,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        calls = folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


def waits(call: str) -> bool:
    words = call.split()
    is_about = any(word.removesuffix(".service") in ("ecs", "docker") for word in words[1:])
    starts = words[0] == "start" or {"start", "restart", "--now"} & set(words)
    return is_about and bool(starts) and "--no-block" not in words


@often
@given(SCRIPT)
@example("""trap 'bash -c "trap \\"systemctl restart docker\\" EXIT"' EXIT""")
@example("again() { systemctl restart docker; trap again EXIT; }\ntrap again EXIT")
def test_what_bash_starts_and_waits_for_is_found(body: str) -> None:
    script = f"#!/bin/bash\n{HELPERS}{body}\n"
    calls = [call for call in called(script) if waits(call)]
    found = [
        finding
        for finding in examine(script.encode(), "s", "ecs").findings
        if finding.id == "BY101"
    ]
    assert found or not calls, calls


@often
@given(QUIET_SCRIPT)
def test_where_nothing_could_wait_there_is_no_finding(body: str) -> None:
    script = f"#!/bin/bash\n{HELPERS}{body}\n"
    assert not any(waits(call) for call in called(script))
    assert [
        f.evidence for f in examine(script.encode(), "s", "ecs").findings if f.id == "BY101"
    ] == []


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_one_for_bash_too(way: str) -> None:
    script = f"#!/bin/bash\n{_put((way, 'systemctl restart docker'))}\n"
    assert called(script) == ["systemctl restart docker"]
    assert [f.id for f in examine(script.encode(), "s", "ecs").findings] == ["BY101"]


@pytest.mark.parametrize("way", TWINS)
def test_no_twin_is_one_for_bash_either(way: str) -> None:
    script = f"#!/bin/bash\n{_put((way, 'systemctl restart docker'))}\n"
    assert called(script) == []
    assert examine(script.encode(), "s", "ecs").findings == ()


def test_the_recorder_records() -> None:
    assert called("systemctl restart docker\nsudo -E service ecs start\n") == [
        "systemctl restart docker",
        "service ecs start",
    ]

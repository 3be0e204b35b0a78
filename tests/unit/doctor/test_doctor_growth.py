"""Scripts whose variables would grow to gigabytes: examined in little memory, to their end."""

from __future__ import annotations

import base64
import gzip
import resource
import subprocess
import sys

import pytest

MAX_BYTES = 1_000_000_000
#: of CPU time; none takes a tenth of this
MAX_CPU_S = 60
LAST = "\nsystemctl restart docker\n"

EXAMINE = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MAX_BYTES}, {MAX_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({MAX_CPU_S}, {MAX_CPU_S}))
from batchyard.doctor.userdata.examine import examine
print(*(finding.id for finding in examine(sys.stdin.buffer.read(), "x", "ecs").findings))
"""


def find_ids(data: bytes) -> list[str]:
    """Examine user data in a process with limits; return the ids of the findings."""
    done = subprocess.run([sys.executable, "-c", EXAMINE], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-500:]
    return done.stdout.decode().split()


MANY = "; ".join(f"f{i}" for i in range(12)) + "; "
GROWING = {
    "a variable": "A=x\n" + 'A="$A$A$A$A"\n' * 20,
    "a variable, added to": "A=x\nfor i in 1 2 3; do\n" + 'A+="$A$A"\n' * 40 + "done\n",
    "a file, added to itself": "echo x > /tmp/f\n" + "cat /tmp/f >> /tmp/f\n" * 40,
    "two files": "echo x > /tmp/f\n"
    + "cat /tmp/f /tmp/f > /tmp/g; cat /tmp/g /tmp/g > /tmp/f\n" * 40,
    "a file, by tee": "echo x > f\n" + "cat f f f | tee g; cat g g g | tee -a f\n" * 30,
    "an array": "a=(x y)\n" + 'a=("${a[@]}" "${a[@]}" "${a[*]}")\n' * 40,
    "the arguments": "set -- x y\n" + 'set -- "$@" "$@" "$*$*"\n' * 40,
    "a heredoc": "A=x\n" + "A=$(cat <<E\n$A$A$A$A\nE\n)\n" * 30,
    "replacements": "A=x\n" + "A=${A//x/xxxxxxxx}\n" * 30,
    "sed": "echo x > f\n" + "cat f | sed s/x/xxxxxxxx/g | tee f\n" * 30,
    "printf": "A=x\n" + 'printf -v A "%s%s%s%s" "$A" "$A" "$A" "$A"\n' * 30,
    "a substitution": "A=x\n" + 'A=$(echo "$A$A" "$A$A")\n' * 30,
    "words": 'A="x x x x"\n' + 'A="$A $A $A $A"\n' * 12 + "echo" + " $A" * 4000 + "\n",
    "words in quotes": "A=x\n" + 'A="$A$A$A$A"\n' * 12 + "echo" + ' "x$A"' * 2000 + "\n",
    "readings": "".join(f"for v{i} in a b c d e f g h; do :; done\n" for i in range(30))
    + "X="
    + "".join(f"$v{i}" for i in range(30))
    + "\n"
    + 'if true; then X="$X$X$X"; fi\n' * 30
    + "echo"
    + ' "$X$X"' * 500
    + "\n",
    "what functions print": "A=x\n"
    + 'A="$A$A$A$A"\n' * 10
    + "".join(f'f{i}() {{ echo "$A$A"; cat /tmp/f /tmp/f >> /tmp/f; {MANY} }}\n' for i in range(12))
    + "f0\nf1\nf2\n",
    "what is evaluated": 'A="true; true"\n'
    + 'A="$A; $A; $A; $A"\n' * 10
    + 'eval "$A"\nbash -c "$A"\n' * 40,
    "xargs": "A=x\n" + 'A="$A$A$A$A"\n' * 8 + 'echo "$A" | xargs -I x echo xxxxxxxxxxxxxxxx\n' * 20,
    "arithmetic": "$((" * 3000 + "\n",
    "defaults": "echo " + "${a:-" * 3000 + "\n",
}


#: those that take two seconds of CPU time and more
LONG = ("what is evaluated", "what functions print")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in GROWING],
)
def test_what_grows_without_end_takes_little_memory_and_hides_nothing(name: str) -> None:
    is_closed = name not in ("arithmetic", "defaults")
    assert ("BY101" in find_ids(f"#!/bin/bash\n{GROWING[name]}{LAST}".encode())) or not is_closed


def test_files_that_unpack_to_gigabytes_do_not() -> None:
    bomb = base64.b64encode(gzip.compress(bytes(20_000_000), 9)).decode()
    entry = f"- {{path: /tmp/f%d, encoding: gz+b64, content: {bomb}}}\n"
    text = (
        "#cloud-config\nwrite_files:\n"
        + "".join(entry % i for i in range(20))
        + "runcmd:\n- service docker start\n"
    )
    assert "BY101" in find_ids(gzip.compress(text.encode()))


def test_the_limit_on_memory_is_one() -> None:
    assert resource.RLIMIT_AS is not None
    code = EXAMINE.replace("from batchyard", f"b'x' * {2 * MAX_BYTES}\nfrom batchyard")
    done = subprocess.run([sys.executable, "-c", code], input=b"", capture_output=True)
    assert b"MemoryError" in done.stderr

"""What needs a shell and what does not. A false "needs none" would change what a command means."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.embedded.shell import SHELL, plain_words, program_of, through_shell

ECHO = shutil.which("echo")


def needs_shell(command: str) -> bool:
    return program_of(command)[0] == SHELL


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo hello", ("echo", "hello")),
        ("echo", ("echo",)),
        ("  echo   hello  world ", ("echo", "hello", "world")),
        ("echo a=b c:d,e ./f-g_h @i %j +k", ("echo", "a=b", "c:d,e", "./f-g_h", "@i", "%j", "+k")),
        (
            "python3 -m recon --in raw/1.npy -j4",
            ("python3", "-m", "recon", "--in", "raw/1.npy", "-j4"),
        ),
        ("/bin/echo -n", ("/bin/echo", "-n")),
        ("echo 1.5e-3", ("echo", "1.5e-3")),
        ("true", ("true",)),
        ("false", ("false",)),
    ],
)
def test_a_program_with_plain_arguments_needs_no_shell(
    command: str, words: tuple[str, ...]
) -> None:
    assert plain_words(command) == words


def test_the_program_is_found_and_keeps_its_name_as_first_argument() -> None:
    assert program_of("echo hello") == (ECHO, ("echo", "hello"))


@pytest.mark.parametrize(
    "command",
    [
        "echo 'a b'",
        'echo "a"',
        "echo a\\ b",
        "echo $HOME",
        "echo ${HOME}",
        "echo `date`",
        "echo $(date)",
        "echo *",
        "echo a?",
        "echo [ab]",
        "echo {a,b}",
        "echo ~",
        "echo ~root",
        "echo a; echo b",
        "echo a;",
        "true && echo b",
        "false || echo b",
        "echo a | cat",
        "echo a > out",
        "echo a >out",
        "cat < in",
        "cat <<< in",
        "echo a 2>&1",
        "echo a &",
        "echo a # not this",
        "# nothing",
        "! true",
        "(echo a)",
        "{ echo a; }",
        "echo a!b",
        "echo a^b",
    ],
)
def test_whatever_is_special_to_a_shell_goes_through_it(command: str) -> None:
    assert program_of(command) == ("/bin/sh", ("sh", "-c", command))


@pytest.mark.parametrize(
    "command", ["A=b", "A=b echo c", "A= echo", "A+=b echo", "PATH=/nowhere echo a", "=b echo"]
)
def test_an_assignment_before_the_program_goes_through_the_shell(command: str) -> None:
    assert needs_shell(command)


@pytest.mark.parametrize(
    "word",
    ". : [ alias bg break builtin case cd chdir command continue declare do done elif else enable "
    "esac eval exec exit export fc fg fi for function getopts hash help history if in jobs kill "
    "let local popd printf pushd pwd read readonly return select set shift source test then time "
    "times trap type typeset ulimit umask unalias unset until "
    "wait while".split(),
)
def test_the_shells_own_words_go_through_it(word: str, tmp_path: Path) -> None:
    tool(tmp_path, word if word != "." else "dot")
    assert program_of(f"{word} a", str(tmp_path)) == through_shell(f"{word} a")


def test_the_shells_own_words_are_ordinary_as_arguments() -> None:
    assert plain_words("echo if then cd exit .") == ("echo", "if", "then", "cd", "exit", ".")


@pytest.mark.parametrize(
    "command", ["echo -n a", "echo -e a", "echo a -n", "echo --help", "echo -"]
)
def test_echo_with_options_is_the_shells(command: str) -> None:
    assert needs_shell(command)


@pytest.mark.parametrize("command", ["true --help", "false --version"])
def test_true_and_false_with_options_are_the_shells(command: str) -> None:
    assert needs_shell(command)


@pytest.mark.parametrize("command", ["echo é", "echo 日本", "échø", "echo a\u00a0b", "echo \u2028"])
def test_letters_beyond_ascii_are_left_to_the_shell(command: str) -> None:
    assert needs_shell(command)


@pytest.mark.parametrize(
    "command",
    ["echo a\tb", "echo a\nb", "echo a\n", "\techo", "echo\ra", "echo a\x0bb", "echo a\x00b"],
)
def test_whitespace_other_than_spaces_is_left_to_the_shell(command: str) -> None:
    assert needs_shell(command)


@pytest.mark.parametrize("command", ["", " ", "   "])
def test_a_command_without_words_is_left_to_the_shell(command: str) -> None:
    assert needs_shell(command)


# -- finding the program -----------------------------------------------------------------------


def tool(folder: Path, name: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\necho tool\n")
    path.chmod(mode)
    return path


def test_the_program_is_looked_up_in_the_childs_own_path(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    second = tool(tmp_path / "second", "mytool")
    path = f"{tmp_path / 'first'}:{tmp_path / 'second'}"
    assert program_of("mytool a", path) == (str(second), ("mytool", "a"))
    assert program_of("mytool a", str(tmp_path / "first")) == through_shell("mytool a")


def test_a_program_given_by_its_path_needs_no_search(tmp_path: Path) -> None:
    path = tool(tmp_path, "mytool")
    assert program_of(f"{path} a", "/nowhere") == (str(path), (str(path), "a"))


def test_a_relative_program_is_found_from_the_current_folder(tmp_path: Path) -> None:
    path = tool(tmp_path, "mytool")
    relative = os.path.relpath(path)
    assert program_of(f"{relative} a", "/nowhere") == (str(path), (relative, "a"))


@pytest.mark.parametrize(
    "command", ["no-such-program-7 a", "./no-such-program-7", "/no/such/program"]
)
def test_a_program_that_cannot_be_found_is_left_to_the_shell(command: str) -> None:
    assert program_of(command) == through_shell(command)


def test_what_is_found_and_cannot_be_executed_is_left_to_the_shell(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    tool(tmp_path, "text", mode=0o644)
    for name in ("folder", "text"):
        assert program_of(name, str(tmp_path)) == through_shell(name)
        assert program_of(str(tmp_path / name)) == through_shell(str(tmp_path / name))


def test_an_empty_path_finds_nothing(tmp_path: Path) -> None:
    assert program_of("echo a", "") == through_shell("echo a")


# -- the same as a shell -----------------------------------------------------------------------

PLAIN = (
    "echo",
    "/bin/echo",
    "true",
    "false",
    "q",
    "Q=z",
    "a.b",
    "x/y",
    "-q",
    "@",
    "%",
    "+",
    ",",
    ":",
    "7",
    "=",
    "if",
    "cd",
)
SPECIAL = (
    "-n",
    "--help",
    "~",
    "*",
    "$Q",
    "'q z'",
    '"q"',
    "\\n",
    ";",
    "&&",
    "||",
    "|",
    "#",
    "!",
    "é",
    "\t",
    "\n",
    "{q,z}",
    ">&1",
    "(",
)
commands = st.tuples(
    st.sampled_from(["echo ", "/bin/echo ", "true ", "false ", "  echo  ", ""]),
    st.lists(
        st.sampled_from(PLAIN) | st.sampled_from(PLAIN) | st.sampled_from(SPECIAL), max_size=3
    ),
    st.sampled_from([" ", " ", "  ", ""]),
).map(lambda parts: parts[0] + parts[2].join(parts[1]))


@given(commands)
def test_what_runs_without_a_shell_says_and_returns_what_it_would_in_one(command: str) -> None:
    program, argv = program_of(command)
    if program == SHELL:
        assert argv == ("sh", "-c", command)
        return
    # A folder with a file in it, so that a pattern would have something to match.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "q").touch()
        direct, shell = (
            subprocess.run(
                arguments,
                executable=executable,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            for executable, arguments in ((program, argv), (SHELL, ("sh", "-c", command)))
        )
    assert (direct.stdout, direct.returncode) == (shell.stdout, shell.returncode)

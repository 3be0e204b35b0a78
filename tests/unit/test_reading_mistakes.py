"""Every mistake a pipeline file can have, and exactly what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard.errors import PipelineFileError
from batchyard.pipeline_file import reading

ONE = "name: p\nsteps:\n- name: a\n  command: x\n"


def step(keys: str) -> str:
    """A file of one step with further keys, which begin at line 5, column 3."""
    return ONE + "".join(f"  {line}\n" for line in keys.split("\n"))


MISTAKES = [
    ("empty", "", ["the file is empty; write name: and steps:, or begin with `batchyard init`"]),
    (
        "only a comment",
        "# later\n",
        ["the file is empty; write name: and steps:, or begin with `batchyard init`"],
    ),
    (
        "a null document",
        "---\n",
        ["the file is empty; write name: and steps:, or begin with `batchyard init`"],
    ),
    (
        "a list",
        "- a\n- b\n",
        [
            (
                "1:1: the file is a list, not a pipeline; write name: and steps:, or give a"
                " plain list of commands a name that ends in .txt"
            )
        ],
    ),
    (
        "plain text",
        "echo hello\n",
        [
            (
                "1:1: the file is plain text, not a pipeline; write name: and steps:, or"
                " give a plain list of commands a name that ends in .txt"
            )
        ],
    ),
    (
        "an unclosed bracket",
        "name: p\nsteps: [a, b\n",
        ["2:8: not YAML: this bracket is never closed; close it"],
    ),
    (
        "an unclosed quote",
        "name: p\nsteps:\n- name: 'a\n",
        ["3:9: not YAML: a quote is opened here and never closed; close it"],
    ),
    (
        "a missing comma",
        "name: p\nsteps: [{name: a command: x}]\n",
        ["2:9: not YAML: this { is not closed, or a comma is missing in it; write it like {a: 1}"],
    ),
    (
        "a tab",
        "name: p\nsteps:\n\t- name: a\n",
        ["3:1: not YAML: a tab is used for indentation; indent with spaces"],
    ),
    (
        "a colon too many",
        "name: p\nsteps:\n- name: a\n  command: echo a: b\n",
        [
            (
                '4:18: not YAML: a key is not allowed here; put text that contains ": " in'
                " quotes, or check the indentation"
            )
        ],
    ),
    (
        "crooked indentation",
        "name: p\nsteps:\n - name: a\n- name: b\n",
        [
            (
                "4:1: not YAML: this does not fit the lines before it; indent items of one"
                " list or mapping alike, and close quotes and brackets"
            )
        ],
    ),
    (
        "a bare asterisk",
        "name: p\nsteps:\n- name: a\n  command: x\n  inputs: [*.txt]\n",
        [
            (
                "5:12: not YAML: * and & have a special meaning in YAML; put text that"
                " begins with them in quotes"
            )
        ],
    ),
    (
        "a value that begins with @",
        "name: @p\n",
        ['1:7: not YAML: a value cannot begin with "@"; put it in quotes'],
    ),
    (
        "two documents",
        ONE + "---\nname: q\n",
        ['5:1: a second document ("---") in the file; write one pipeline a file'],
    ),
    (
        "a control character",
        "name: p\x07\n",
        ["1:8: the control character U+0007 in the file; remove it"],
    ),
    ("a NUL", "name: p\nsteps: \0\n", ["2:8: a NUL byte in the file; remove it"]),
    (
        "no name, no steps",
        "env: {A: 1}\n",
        [
            "1:1: the file has no name; write name: my-folder",
            "1:1: the file has no steps; write steps: and a list of them",
        ],
    ),
    (
        "misspelt keys",
        "nmae: p\nstpes:\n- name: a\n",
        [
            '1:1: unknown key "nmae" in the file; did you mean "name"?',
            '2:1: unknown key "stpes" in the file; did you mean "steps"?',
        ],
    ),
    (
        "a misspelt key in a step",
        "name: p\nsteps:\n- name: a\n  comand: x\n",
        ['4:3: unknown key "comand" in a step; did you mean "command"?'],
    ),
    (
        "a key in capitals",
        step("CPUS: 2"),
        ['5:3: unknown key "CPUS" in a step; did you mean "cpus"?'],
    ),
    (
        "a key like no other",
        "xyzzy: 1\n" + ONE,
        [
            (
                '1:1: unknown key "xyzzy" in the file; the keys here are name, steps, image,'
                " env, params, defaults, workspace, fail_fast, spot, max_cost"
            )
        ],
    ),
    (
        "a duplicate key",
        ONE + "name: q\n",
        ['5:1: a second "name": the first is at line 1; keep one of them'],
    ),
    (
        "a list as a key",
        "? [a]\n: b\n" + ONE,
        ["1:3: a list or mapping is written where a key is expected; write a word"],
    ),
    (
        "steps not a list",
        "name: p\nsteps: a\n",
        ['2:8: steps is "a"; write a list with at least one step'],
    ),
    (
        "steps empty",
        "name: p\nsteps: []\n",
        ["2:8: steps is an empty list; write a list with at least one step"],
    ),
    (
        "steps without a value",
        "name: p\nsteps:\n",
        ["2:7: steps has no value; write a list with at least one step"],
    ),
    (
        "a step that is text",
        "name: p\nsteps: [{name: a, command: x}, b]\n",
        ['2:32: a step is "b"; write a mapping, like {name: a, command: echo hello}'],
    ),
    (
        "names out of the rules",
        (
            "name: My Pipeline\nsteps:\n- {name: 1st Übung, command: x}\n- {name: '',"
            " command: x}\n- {name: "
        )
        + "a" * 33
        + ", command: x}\n- {name: [a], command: x}\n- {command: x}\n",
        [
            (
                '1:7: name is "My Pipeline"; write lower-case letters, digits and -,'
                " beginning with a letter, at most 40, like my-pipeline"
            ),
            (
                '3:10: name is "1st Übung"; write lower-case letters, digits and -,'
                " beginning with a letter, at most 32, like step-1st-ubung"
            ),
            (
                '4:10: name is ""; write lower-case letters, digits and -, beginning with a'
                " letter, at most 32, like step"
            ),
            (
                '5:10: name is "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; write lower-case'
                " letters, digits and -, beginning with a letter, at most 32, like"
                " aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            ),
            (
                "6:10: name is a list; write lower-case letters, digits and -, beginning"
                " with a letter, at most 32"
            ),
            "7:3: the step has no name; write name: and a word",
        ],
    ),
    (
        "duplicate step names",
        (
            "name: p\nsteps:\n- {name: a, command: x}\n- {name: a, command: y}\n- {name: a,"
            " command: z}\n"
        ),
        [
            (
                '4:10: a second step named "a": the first is at line 3; give each step a'
                " name of its own"
            ),
            (
                '5:10: a second step named "a": the first is at line 3; give each step a'
                " name of its own"
            ),
        ],
    ),
    (
        "a circle",
        "name: p\n"
        "steps:\n"
        "- {name: a, command: x, needs: [c]}\n"
        "- {name: b, command: x, needs: [a]}\n"
        "- {name: c, command: x, needs: [b]}\n"
        "- {name: d, command: x, needs: [a]}\n",
        ["3:33: the steps need each other in a cycle: a -> c -> b -> a; remove one of these needs"],
    ),
    (
        "two circles",
        "name: p\n"
        "steps:\n"
        "- {name: a, command: x, needs: [b]}\n"
        "- {name: b, command: x, needs: [a]}\n"
        "- {name: c, command: x, needs: [a, d]}\n"
        "- {name: d, command: x, needs: [c]}\n",
        [
            "3:33: the steps need each other in a cycle: a -> b -> a; remove one of these needs",
            "5:36: the steps need each other in a cycle: c -> d -> c; remove one of these needs",
        ],
    ),
    (
        "a step that needs itself",
        "name: p\nsteps:\n- {name: a, command: x, needs: [a]}\n",
        ['3:33: step "a" needs itself; remove it'],
    ),
    (
        "a need of no step",
        "name: p\n"
        "steps:\n"
        "- {name: prepare, command: x}\n"
        "- {name: b, command: x, needs: [prepaer]}\n"
        "- {name: c, command: x, needs: [xyz]}\n",
        [
            '4:33: there is no step "prepaer"; did you mean "prepare"?',
            '5:33: there is no step "xyz"; the other steps are prepare, b',
        ],
    ),
    (
        "a need twice",
        (
            "name: p\nsteps:\n- {name: a, command: x}\n- {name: b, command: x, needs: [a,"
            " {step: a, each: true}]}\n"
        ),
        ['4:43: step "b" needs "a" twice; keep one of them'],
    ),
    (
        "needs of wrong shapes",
        "name: p\n"
        "steps:\n"
        "- {name: a, command: x}\n"
        "- {name: b, command: x, needs: a}\n"
        "- {name: c, command: x, needs: [[a], {each: true}, {step: a, eahc: true}]}\n"
        "- {name: d, command: x, needs: [{step: a, each: 1}]}\n",
        [
            '4:32: needs is "a"; write a list of steps: in brackets, [a]',
            "5:33: an item of needs is a list; write the name of a step",
            "5:38: an item of needs names no step; write {step: NAME, each: true}",
            '5:62: unknown key "eahc" in an item of needs; did you mean "each"?',
            "6:49: each is 1; write true or false",
        ],
    ),
    (
        "each between different sizes",
        "name: p\n"
        "steps:\n"
        "- {name: a, command: x, array: 4}\n"
        "- {name: b, command: x, array: 5000, needs: [{step: a, each: true}]}\n"
        "- {name: c, command: x, needs: [{step: a, each: true}]}\n",
        [
            (
                '4:53: each: child i of "b" would wait for child i of "a", but they have'
                " 5,000 and 4 children; give both the same array, or remove each"
            ),
            (
                '5:40: each: child i of "c" would wait for child i of "a", but they have 1'
                " and 4 children; give both the same array, or remove each"
            ),
        ],
    ),
    ("array 0", step("array: 0"), ["5:10: array is 0; write a whole number from 1 to 1,000,000"]),
    (
        "array -1",
        step("array: -1"),
        ["5:10: array is -1; write a whole number from 1 to 1,000,000"],
    ),
    (
        "array 1000001",
        step("array: 1000001"),
        ["5:10: array is 1000001; write a whole number from 1 to 1,000,000"],
    ),
    (
        "array many",
        step("array: many"),
        ['5:10: array is "many"; write a whole number from 1 to 1,000,000'],
    ),
    (
        "array 2.5",
        step("array: 2.5"),
        ["5:10: array is 2.5; write a whole number from 1 to 1,000,000"],
    ),
    (
        "array true",
        step("array: true"),
        ["5:10: array is true; write a whole number from 1 to 1,000,000"],
    ),
    ('array "4"', step('array: "4"'), ['5:10: array is "4"; write 4, without quotes or commas']),
    (
        "array 010",
        step("array: 010"),
        ["5:10: array is 010; write a whole number from 1 to 1,000,000"],
    ),
    (
        "array 1,000",
        step("array: 1,000"),
        ['5:10: array is "1,000"; write 1000, without quotes or commas'],
    ),
    (
        "array [4]",
        step("array: [4]"),
        ["5:10: array is a list; write a whole number from 1 to 1,000,000"],
    ),
    (
        "array",
        step("array:"),
        ["5:9: array has no value; write a whole number from 1 to 1,000,000"],
    ),
    (
        "a number of thousands of digits",
        step("array: " + "9" * 5000),
        [f'5:10: array is "{"9" * 57}..."; write a whole number from 1 to 1,000,000'],
    ),
    (
        "cpus, gpus and the like",
        step("cpus: 0\ngpus: -1\nretries: 10\nmax_running: 0\npriority: 10000\nkeep_going: maybe"),
        [
            "5:9: cpus is 0; write a whole number from 1 to 100,000",
            "6:9: gpus is -1; write a whole number from 0 to 100,000",
            "7:12: retries is 10; write a whole number from 0 to 9",
            "8:16: max_running is 0; write a whole number from 1 to 1,000,000",
            "9:13: priority is 10000; write a whole number from 0 to 9,999",
            '10:15: keep_going is "maybe"; write true or false',
        ],
    ),
    (
        "memory",
        step("memory: 2 gigs\nshm: 1MiB"),
        [
            (
                '5:11: memory: "2 gigs" is not an amount of memory; write a number with a'
                " unit, like 2GiB or 512MiB"
            ),
            '6:8: shm: "1MiB" is too little memory; write at least 4MiB',
        ],
    ),
    (
        "memory without a unit",
        step("memory: 2048"),
        ['5:11: memory: "2048" has no unit; write 2048MiB or 2048GiB, whichever is meant'],
    ),
    (
        "memory that is a list",
        step("memory: [2GiB]"),
        ["5:11: memory is a list; write a number with a unit, like 2GiB or 512MiB"],
    ),
    (
        "memory without a value",
        step("memory:"),
        ["5:10: memory has no value; write a number with a unit, like 2GiB or 512MiB"],
    ),
    (
        "timeouts",
        step("timeout: soon"),
        [
            (
                '5:12: timeout: "soon" is not a length of time; write a number with a unit,'
                " like 90s, 30m, 1h30m or 2d"
            )
        ],
    ),
    (
        "no timeout at all",
        step("timeout: 0"),
        ['5:12: timeout: "0" is no time at all; write at least 1s'],
    ),
    (
        "retry rules",
        step("retry_on: [0, 256, 78-64, 0-5, spto, any, [1], -1]\nfail_on: 2"),
        [
            "5:14: an item of retry_on is 0, and exit code 0 is success; write codes from 1 to 255",
            (
                "5:17: an item of retry_on is 256, and there is no such exit code; write"
                " codes from 1 to 255"
            ),
            '5:22: an item of retry_on is 78-64, a range from high to low; write "64-78"',
            (
                "5:29: an item of retry_on is 0-5, and exit code 0 is success; write codes"
                " from 1 to 255"
            ),
            (
                '5:34: an item of retry_on is "spto"; write an exit code from 1 to 255, a'
                ' range like "64-78", or one of spot, oom, image, any'
            ),
            (
                "5:45: an item of retry_on is a list; write an exit code from 1 to 255, a"
                ' range like "64-78", or one of spot, oom, image, any'
            ),
            (
                '5:50: an item of retry_on is "-1"; write an exit code from 1 to 255, a'
                ' range like "64-78", or one of spot, oom, image, any'
            ),
            "6:12: fail_on is 2; write a list of exit codes: in brackets, [2]",
        ],
    ),
    (
        "retry_on empty",
        step("retry_on: []"),
        ["5:13: retry_on is an empty list; write a list of exit codes or words, one at least"],
    ),
    (
        "nothing to run",
        "name: p\nsteps:\n- name: a\n",
        ['3:3: step "a" has nothing to run; write command:, commands: or commands_file:'],
    ),
    (
        "everything to run",
        "name: p\nsteps:\n- {name: a, command: x, commands: [y], commands_file: z.txt}\n",
        [
            '3:25: step "a" has both command and commands; keep one of them',
            '3:40: step "a" has both command and commands_file; keep one of them',
            '3:55: commands_file "z.txt": there is no such file; check the path',
        ],
    ),
    (
        "commands",
        "name: p\n"
        "steps:\n"
        "- {name: a, commands: []}\n"
        "- {name: b, commands: x}\n"
        "- {name: c, commands: [\"a\\nb\", '', ~, {x: 1}]}\n"
        "- {name: d, command: ' '}\n",
        [
            "3:23: commands is an empty list; write a list of commands, one at least",
            '4:23: commands is "x"; write a list of commands, one at least: in brackets, [x]',
            (
                "5:24: an item of commands has several lines; write it as one line, or put"
                " it in a script"
            ),
            "5:32: an item of commands is empty; write a shell command",
            "5:36: an item of commands has no value; write a shell command",
            "5:39: an item of commands is a mapping; write a shell command",
            "6:22: command is empty; write a shell command",
        ],
    ),
    (
        "a NUL in a command",
        'name: p\nsteps:\n- {name: a, command: "x\\0"}\n',
        ["3:22: command contains a NUL or half a character; remove it"],
    ),
    (
        "a missing commands file",
        "name: p\n"
        "steps:\n"
        "- {name: a, commands_file: comands.txt}\n"
        "- {name: b, commands_file: no/such.txt}\n"
        "- {name: c, commands_file: .}\n",
        [
            (
                '3:28: commands_file "comands.txt": there is no such file; did you mean'
                ' "commands.txt"?'
            ),
            (
                '4:28: commands_file "no/such.txt": there is no such file; check the path:'
                ' there is no folder "no"'
            ),
            '5:28: commands_file ".": this is a folder; name a file in it',
        ],
    ),
    (
        "env",
        "env: {A: ~, 1B: x, AWS_BATCH_JOB_ID: x, BATCHYARD_RUN: x, ARRAY_SIZE: 1, B-C: x, D: [1]}\n"
        + ONE,
        [
            '1:10: env.A has no value; write a value, or "" for an empty one',
            (
                '1:13: "1B" cannot be a name in env; write letters, digits and _, beginning'
                " with a letter or _"
            ),
            (
                '1:20: "AWS_BATCH_JOB_ID" cannot be a name in env; the engine sets this'
                " variable itself: choose another name"
            ),
            (
                '1:41: "BATCHYARD_RUN" cannot be a name in env; the engine sets this'
                " variable itself: choose another name"
            ),
            (
                '1:59: "ARRAY_SIZE" cannot be a name in env; the engine sets this variable'
                " itself: choose another name"
            ),
            (
                '1:74: "B-C" cannot be a name in env; write letters, digits and _, beginning'
                " with a letter or _"
            ),
            '1:85: env.D is a list; write a value, or "" for an empty one',
        ],
    ),
    (
        "env not a mapping",
        "env: [A=1]\n" + ONE,
        ["1:6: env is a list; write a mapping, like {OMP_NUM_THREADS: 1}"],
    ),
    (
        "params",
        "params: {a b: 1, c: }\n" + ONE,
        [
            (
                '1:10: "a b" cannot be a name in params; write letters, digits, _ and -,'
                " beginning with a letter or _"
            ),
            '1:21: params.c has no value; write a value, or "" for an empty one',
        ],
    ),
    (
        "an unknown parameter",
        "params: {slices: 3}\n"
        "name: p\n"
        "steps:\n"
        "- {name: a, command: 'x ${params.slcies} ${params.slices}'}\n"
        "- {name: b, commands: ['${params.slices}', '${params.zzz}']}\n",
        [
            '4:22: there is no parameter "slcies"; did you mean "slices"?',
            '5:44: there is no parameter "zzz"; the parameters are slices',
        ],
    ),
    (
        "an unknown parameter of none",
        "name: p\nsteps:\n- {name: a, command: 'x ${params.slices}'}\n",
        ['3:22: there is no parameter "slices"; write it under params'],
    ),
    (
        "a parameter of several lines in a list",
        'params: {x: "a\\nb"}\nname: p\nsteps:\n- {name: a, commands: ["echo ${params.x}"]}\n',
        ['4:24: the parameter "x" has several lines; write it as one line to use it in a list'],
    ),
    (
        "secrets",
        "env: {A: 1}\n" + step("secrets: {A: arn:aws:x, B: hunter2}"),
        [
            '6:13: "A" is both in env and in secrets; keep one of them',
            (
                "6:30: secrets.B is not an ARN; write the ARN of a secret or parameter, like"
                " arn:aws:..."
            ),
        ],
    ),
    (
        "names of AWS",
        step("queue: a b\nshare: team-a\nimage: ''"),
        [
            (
                '5:10: queue is "a b"; write the name of a queue: letters, digits, - and _,'
                " at most 128"
            ),
            '6:10: share is "team-a"; write letters and digits only, at most 255',
            (
                '7:10: image is ""; write the name of a container image, at most 255'
                " letters, without spaces"
            ),
        ],
    ),
    (
        "placeholders in patterns",
        "name: p\nparams: {up: ../x, ok: in}\nsteps:\n"
        "- {name: a, command: x, inputs: ['${index}', '${command.1}', '${what}', '${params.no}']}\n"
        "- {name: b, commands: [x 1, y], array: 2, inputs: ['${params.ok}/${command.1}'],\n"
        "   outputs: ['${command.1}', '${params.up}', 'o/${index}']}\n",
        [
            "4:34: an item of inputs has ${index}, and the step has no array; write array: and a"
            " number",
            "4:46: an item of inputs has ${command.1}, and the step has no list of commands; write"
            " the word itself",
            "4:62: an item of inputs has ${what}, which is not known; write ${index},"
            " ${params.NAME} or ${command.WORD}",
            '4:73: there is no parameter "no"; the parameters are up, ok',
            '5:52: an item of inputs is "in/${command.1}", and the command `y` has no word 1: it'
            " has 1, counted from 0; check the commands, or name another word",
            "6:14: an item of outputs has ${command.1}, which is for inputs; write a pattern for"
            " all commands",
            '6:30: an item of outputs is "../x", which is not inside the workspace; write a path'
            " or pattern relative to it, like data/**",
        ],
    ),
    (
        "globs",
        step("inputs: [/etc, ../x, a/../b, s3://b/x, '']\noutputs: out\ncheckpoint: [{a: 1}]"),
        [
            (
                '5:12: an item of inputs is "/etc", which is not inside the workspace; write'
                " a path or pattern relative to it, like data/**"
            ),
            (
                '5:18: an item of inputs is "../x", which is not inside the workspace; write'
                " a path or pattern relative to it, like data/**"
            ),
            (
                '5:24: an item of inputs is "a/../b", which is not inside the workspace;'
                " write a path or pattern relative to it, like data/**"
            ),
            (
                '5:32: an item of inputs is "s3://b/x", which is not inside the workspace;'
                " write a path or pattern relative to it, like data/**"
            ),
            (
                '5:42: an item of inputs is "", which is not inside the workspace; write a'
                " path or pattern relative to it, like data/**"
            ),
            '6:12: outputs is "out"; write a list of paths or patterns: in brackets, [out]',
            (
                "7:16: an item of checkpoint is a mapping; write a path or pattern in the"
                " workspace, like data/**"
            ),
        ],
    ),
    (
        "mounts",
        step(
            "mounts:\n- {efs: fs-0123abcd}\n- {path: /a}\n- {path: data, host: /b}\n"
            "- {path: /c, host: /d, efs: fs-0123abcd}\n- {path: /e, host: /f, folder: /g}\n"
            "- {path: /h, efs: fs-0123abcd, folder: /i, access_point: fsap-0123abcd}\n"
            "- {path: /j, efs: data}"
        ),
        [
            "6:5: an item of mounts has no path; write {path: /data, efs: fs-0123abcd}",
            "7:5: an item of mounts has no source; write one of efs, host, instance_store",
            '8:12: path is "data"; write an absolute path, like /data',
            "9:5: an item of mounts has efs and host; write one of efs, host, instance_store",
            "10:26: an item of mounts has folder without efs; add efs",
            "11:34: an item of mounts has folder and access_point; leave folder out: the access"
            " point decides the folder",
            '12:21: efs is "data"; write the id of a file system, like fs-0123abcd',
        ],
    ),
    (
        "ulimits, user and log mode",
        step('ulimits: {nofile: many, files: 1, core: "2:1"}\nuser: a b\nlog_mode: lossy'),
        [
            "5:21: ulimits.nofile is 'many'; write a number, -1 for no limit, or \"SOFT:HARD\"",
            '5:27: "files" cannot be a name in ulimits; write one of core, cpu, data, fsize,'
            " locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending,"
            " stack",
            "5:43: ulimits.core: 2 is above the hard limit 1; lower the first",
            '6:9: user is "a b"; write a user, or "USER:GROUP", by name or number',
            '7:13: log_mode is "lossy"; write blocking or non-blocking',
        ],
    ),
    (
        "defaults",
        "defaults: {cpus: 0, array: 4, foo: 1, mmory: 2GiB}\n" + ONE,
        [
            "1:18: cpus is 0; write a whole number from 1 to 100,000",
            "1:21: array cannot be a default; write it in each step",
            (
                '1:31: unknown key "foo" in defaults; the keys here are cpus, memory, gpus,'
                " timeout, expect, retries, retry_on, fail_on, max_running, keep_going, image, shm,"
                " queue, share, priority, log_mode, mounts, ulimits, user"
            ),
            '1:39: unknown key "mmory" in defaults; did you mean "memory"?',
        ],
    ),
    (
        "defaults a list",
        "defaults: [1]\n" + ONE,
        ["1:11: defaults is a list; write a mapping, like {cpus: 1, memory: 2GiB}"],
    ),
    (
        "workspace and fail_fast",
        "workspace: ''\nfail_fast: 3\n" + ONE,
        [
            '1:12: workspace is ""; write a folder, or a prefix like s3://bucket/path',
            "2:12: fail_fast is 3; write true or false",
        ],
    ),
    (
        "a tag that would run code",
        (
            "name: p\nsteps:\n- name: !!python/object/apply:os.system ['touch hacked']\n "
            " command: !env HOME\n"
        ),
        [
            (
                '3:9: the tag "!!python/object/apply:os.system" is not allowed: a pipeline'
                " file contains plain values; remove the tag"
            ),
            (
                "3:9: name is a list; write lower-case letters, digits and -, beginning with"
                " a letter, at most 32"
            ),
            (
                '4:12: the tag "!env" is not allowed: a pipeline file contains plain values;'
                " remove the tag"
            ),
        ],
    ),
    (
        "an alias of nothing",
        "name: *p\n",
        [
            (
                "1:7: *p is an alias, and there is no &p before it; put text that begins"
                " with * in quotes"
            )
        ],
    ),
    (
        "an alias inside itself",
        "name: p\nsteps: &a [*a]\n",
        ["2:12: *a is an alias inside its own value; remove it"],
    ),
    (
        "a merge of no mapping",
        "name: p\nsteps:\n- &a {name: a, command: x}\n- {<<: a, name: b, command: x}\n",
        ['4:8: "<<" takes a mapping, and this is not one; write <<: *name'],
    ),
    (
        "weights of a step that hands out nothing",
        step("weight: [1]"),
        [
            "5:11: weight is for commands that are handed out one by one; add share_out: dynamic,"
            " or remove it"
        ],
    ),
    (
        "weights that do not fit the list",
        "name: p\nsteps:\n- {name: a, share_out: dynamic, commands: [x, y], weight: [1, -2, q]}\n"
        "- {name: b, share_out: dynamic, commands: [x, y], weight: [1, .5, 3]}\n"
        "- {name: c, share_out: dynamic, commands: [x, y], weight: much}\n",
        [
            "3:59: weight has 3 numbers, and the list 2 commands; write a number for each command",
            "3:63: an item of weight is -2; write a number, 0 or more",
            '3:67: an item of weight is "q"; write a number, 0 or more',
            "4:59: weight has 3 numbers, and the list 2 commands; write a number for each command",
            '5:59: weight is "much"; write a list of numbers, one for each command, or'
            " ${command.WORD}",
        ],
    ),
    (
        "words that are no weights",
        "name: p\nsteps:\n- {name: a, share_out: dynamic, commands: [x 1, x one], weight: "
        '"${command.1}"}\n- {name: b, share_out: dynamic, commands: [x -n 1, x], weight: '
        '"${command.-n}"}\n',
        [
            '3:65: weight is "${command.1}", which is "one" in the command "x one"; name a word'
            " that is a number, 0 or more",
            '4:64: weight is "${command.-n}", and the command `x` has no word after -n; name a'
            " word that every command has",
        ],
    ),
    (
        "nesting without end",
        "[" * 100,
        ["1:41: lists and mappings nested more than 40 deep; write them flatter"],
    ),
]


@pytest.mark.parametrize(("text", "expected"), [pytest.param(t, e, id=i) for i, t, e in MISTAKES])
def test_a_mistake_is_told_with_its_place_and_what_to_write(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "my-folder"
    folder.mkdir()
    (folder / "commands.txt").write_text("true\n")
    path = folder / "p.yaml"
    path.write_bytes(text.encode())
    with pytest.raises(PipelineFileError) as caught:
        reading.load(path)
    messages = [str(mistake).removeprefix(f"{path}:").strip() for mistake in caught.value.mistakes]
    assert messages == expected
    assert caught.value.exit_code == 2

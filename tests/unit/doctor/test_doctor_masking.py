"""Saved facts have no secret and no account id, and give the same findings as the facts."""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import cpu_time
from batchyard.doctor import facts_json, packed, secrets
from batchyard.doctor.facts import Activity, Environment, Facts, Job, LaunchTemplate, Queue, Subject
from batchyard.doctor.finding import Finding
from batchyard.doctor.host.facts import HostFacts, Process
from batchyard.doctor.host.judge import judge as judge_host
from batchyard.doctor.judge import judge
from batchyard.doctor.masking import mask_facts, mask_text

NOW = 1_700_000_000_000
often = settings(suppress_health_check=list(HealthCheck))

MIME = (
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
    "--B\n{headers}\n\n{body}\n--B--\n"
)
SHELL, CONFIG = "Content-Type: text/x-shellscript", "Content-Type: text/cloud-config"
SECRET = (
    "#!/bin/bash\nexport DB_PASSWORD=hunterZZZ1\n"
    "aws sts get --role arn:aws:iam::210987654321:role/x\n"
)


def b64(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def in_lines(text: str, indent: str = "") -> str:
    return ("\n" + indent).join(text[i : i + 76] for i in range(0, len(text), 76))


def facts_with(user_data: str) -> Facts:
    environment = Environment(
        "e",
        strategy="BEST_FIT_PROGRESSIVE",
        max_vcpus=64,
        instance_types=("m6i.large",),
        image_types=("ECS_AL2023",),
        launch_template=LaunchTemplate("lt-1", "1", user_data),
    )
    return Facts(
        Subject("queue", "q"),
        NOW,
        queue=Queue("q", environments=("e",)),
        environments=(environment,),
    )


def saved(facts: Facts) -> Facts:
    back = facts_json.load(facts_json.dump(mask_facts(facts)))
    assert isinstance(back, Facts)
    return back


def user_data_of(facts: Facts) -> str:
    assert isinstance(facts.environments, tuple)
    template = facts.environments[0].launch_template
    assert isinstance(template, LaunchTemplate)
    return template.user_data


def everything(text: str) -> str:
    """A text with all that is packed in it."""
    return "\n".join([text, *(inner for _, inner in packed.unpack_layers(text))])


def ids(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.id for finding in findings]


# -- secrets that are hidden ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "export DB_PASSWORD=hunterZZ1",
        "DB_PASS=hunterZZ1",
        "MYSQL_PWD=hunterZZ1",
        "PASSPHRASE=hunterZZ1",
        "AUTH=hunterZZ1",
        "PWD_ADMIN=hunterZZ1",
        "SNOWFLAKE_KEY=hunterZZ1",
        "docker login -u me -p hunterZZ1 registry.example.org",
        "docker login --username me --password hunterZZ1 registry.example.org",
        "echo hunterZZ1 | docker login -u me --password-stdin",
        "curl -u me:hunterZZ1 https://example.org",
        "curl -fsSL --user 'me:hunterZZ1' https://example.org",
        "sshpass -p hunterZZ1 ssh host",
        "mysql -uroot -phunterZZ1",
        "echo root:hunterZZ1 | chpasswd",
        'echo "root:hunterZZ1" | sudo chpasswd',
        "chpasswd <<END\nroot:hunterZZ1\nadmin:hunterZZ2\nEND",
        "curl -H 'Authorization: Basic aHVudGVyOmh1bnRlcg==' https://example.org",
        "git clone https://hunterZZ1hunterZZ1@github.com/a/b",
        "HTTP_PROXY=me:hunterZZ1@proxy:3128",
        "HTTP_PROXY=http://me:hunterZZ1@proxy:3128",
        "password: |\n  hunterZZ1\n  hunterZZ2",
        "password:\n  hunterZZ1",
        "password: hunterZZ1 hunter horse",
        "- plain_text_passwd: hunterZZ1",
        "passwd: $6$rounds=4096$abcdefgh$hunterHASH",
        "chpasswd:\n  list: |\n    root:hunterZZ1\n    admin:hunterZZ2\n  expire: false",
        "chpasswd: {list: ['root:hunterZZ1']}",
        'ECS_ENGINE_AUTH_DATA={"https://index.docker.io/v1/":'
        '{"auth":"aHVudGVyOmh1bnRlcg==","email":"a@b"}}',
        'echo "ECS_ENGINE_AUTH_DATA={\\"r\\":{\\"auth\\":\\"aHVudGVyOmh1bnRlcg==\\"}}" '
        ">> /etc/ecs/ecs.config",
        "passwords: [hunterZZ1, 'hunterZZ2']",
        "AWS_SECRET_ACCESS_KEY=/hunterZZ1hunterZZ1hunterZZ1hunterZZ1abc",
        "-----BEGIN RSA PRIVATE KEY-----\nhunterZZ1\nhunterZZ2==\n-----END RSA PRIVATE KEY-----",
        "machine example.org login me password hunterZZ1",
        "CREATE USER 'me' IDENTIFIED BY 'hunterZZ1'",
        "eyJhunterZZ1hunter.eyJhunterZZ1hunter.hunterZZ1",
        "export DB_PASSWORD='hunterZZ1 hunter",
        'echo "{\\"token\\": \\"hunterZZ1',
        "MYSQL_PWD='hunterZZ1",
        "runcmd: [mysql, --password, 'hunterZZ1",
        "mysql -uroot -p'hunterZZ1",
        "DB_PASSWORD='hunterZZ1 && curl --token hunterZZ2hunterZZ2",
        "CREATE USER 'me' IDENTIFIED BY 'hunterZZ1",
    ],
)
def test_no_secret_is_left_and_the_lines_stay(line: str) -> None:
    text = f"#!/bin/bash\n{line}\nsystemctl restart ecs\n"
    masked = mask_text(text)
    assert "hunter" not in masked and "aHVudGVy" not in masked
    assert masked.count("\n") == text.count("\n")
    assert masked.endswith("\nsystemctl restart ecs\n")
    assert mask_text(masked) == masked


@pytest.mark.parametrize(
    "line",
    [
        "ECS_ENGINE_AUTH_TYPE=dockercfg",
        "DB_PASSWORD=$(aws secretsmanager get-secret-value --secret-id db)",
        "DB_PASSWORD=${DB_PASSWORD}",
        "proxy_pass http://127.0.0.1:8080;",
        "passwd: files sss",
        "image: registry/name:tag@sha256:0123456789abcdef",
        "arn:aws:secretsmanager:us-east-1:aws:secret:db-AbCdEf",
        "git clone https://git@github.com/a/b",
        "aws ec2 modify-instance-metadata-options --http-tokens required "
        "--http-put-response-hop-limit 2",
        "mysql -p -u root",
        "export LD_LIBRARY_PATH=/usr/local/nvidia/lib64/somewhere/else/and/on",
        "echo SGVsbG8gd29ybGQsIGhlbGxvIHdvcmxk | base64 -d",
        'echo "Password: " && systemctl restart ecs',
        "read -p 'Token: ' X; systemctl restart ecs",
        'TOKEN="$(aws secretsmanager get-secret-value \\',
    ],
)
def test_what_is_no_secret_stays_as_it_is(line: str) -> None:
    assert mask_text(line) == line


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("DB_PASSWORD=hunter&&systemctl restart ecs", "DB_PASSWORD=hidden&&systemctl restart ecs"),
        ("DB_PASSWORD=hunter;systemctl restart ecs", "DB_PASSWORD=hidden;systemctl restart ecs"),
        ("DB_PASSWORD=a$(systemctl restart ecs)", "DB_PASSWORD=hidden$(systemctl restart ecs)"),
        ("run --password hunter \\\n  --now", "run --password hidden \\\n  --now"),
        ('{"token": 123456789, "a": [1]}', '{"token": 10000000, "a": [1]}'),
        ("{password: hunter, user: me}", "{password: hidden, user: me}"),
    ],
)
def test_a_value_ends_where_its_reader_ends_it(text: str, hidden: str) -> None:
    assert mask_text(text) == hidden


def test_words_of_aws_are_not_taken_for_secrets() -> None:
    for text in (
        "ResourceInitializationError: unable to pull secrets or registry auth: AccessDenied",
        "the security token included in the request is invalid",
        "CannotPullContainerError: token: expired",
    ):
        assert mask_text(text, is_prose=True) == text


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (
            "cdk-hnb659fds-container-assets-210987654321-us-east-1",
            "cdk-hnb659fds-container-assets-000000000001-us-east-1",
        ),
        ("cdk-123456789012-queue", "cdk-000000000001-queue"),
        ("acct123456789012.logs", "acct000000000001.logs"),
        ("1234-5678-9012 or 123456789012", "0000-0000-0001 or 000000000001"),
        ("11111111-2222-3333-4444-123456789012", "11111111-2222-3333-4444-123456789012"),
        ("0.123456789012", "0.123456789012"),
        ("i-0123456789012abcd", "i-0123456789012abcd"),
    ],
)
def test_account_ids_are_found_where_names_hold_them(text: str, hidden: str) -> None:
    assert mask_text(text) == hidden


GZIPPED = b64(gzip.compress(MIME.format(headers=SHELL, body=SECRET).encode(), mtime=0))
WRITTEN = (
    "#cloud-config\nwrite_files:\n- path: /etc/x\n"
    "  encoding: {encoding}\n  content: {content}\nruncmd: [echo]"
)
PACKED = {
    "gzip": GZIPPED,
    "a part in base64": MIME.format(
        headers=f"{SHELL}\nContent-Transfer-Encoding: base64", body=in_lines(b64(SECRET))
    ),
    "a part in base64 of gzip": MIME.format(
        headers=f"{SHELL}\nContent-Transfer-Encoding: base64",
        body=in_lines(b64(gzip.compress(SECRET.encode(), mtime=0))),
    ),
    "a file in base64": MIME.format(
        headers=CONFIG, body=WRITTEN.format(encoding="b64", content=b64(SECRET))
    ),
    "a file in lines of base64": MIME.format(
        headers=CONFIG,
        body=WRITTEN.format(encoding="base64", content="|\n    " + in_lines(b64(SECRET), "    ")),
    ),
    "a file in base64 of gzip": MIME.format(
        headers=CONFIG,
        body=WRITTEN.format(
            encoding="gz+b64", content=b64(gzip.compress(SECRET.encode(), mtime=0))
        ),
    ),
    "a binary value of YAML": MIME.format(
        headers=CONFIG,
        body=WRITTEN.format(
            encoding="gzip", content="!!binary " + b64(gzip.compress(SECRET.encode(), mtime=0))
        ),
    ),
    "an argument": MIME.format(
        headers=SHELL, body=f"#!/bin/bash\necho {b64(SECRET)} | base64 -d > /etc/x"
    ),
    "a pack in a pack": MIME.format(
        headers=f"{CONFIG}\nContent-Transfer-Encoding: base64",
        body=in_lines(b64(WRITTEN.format(encoding="b64", content=b64(SECRET)))),
    ),
}


@pytest.mark.parametrize("name", PACKED)
def test_what_is_packed_is_masked_inside(name: str) -> None:
    facts = facts_with(PACKED[name])
    masked = saved(facts)
    text = everything(user_data_of(masked))
    assert "DB_PASSWORD=hidden" in text and "hunter" not in text
    assert "iam::000000000001:role" in text and "210987654321" not in text
    assert "BY113" in ids(judge(facts).findings)
    assert judge(masked).findings == judge(facts).findings


BINARY = bytes(range(256)) * 3


@pytest.mark.parametrize(
    "user_data",
    [
        b64(BINARY),
        b64(b"\x1f\x8b" + BINARY),
        MIME.format(
            headers=f"{SHELL}\nContent-Transfer-Encoding: base64", body=in_lines(b64(BINARY))
        ),
        MIME.format(headers=CONFIG, body=WRITTEN.format(encoding="b64", content=b64(BINARY))),
        MIME.format(
            headers=CONFIG,
            body=WRITTEN.format(encoding="gz+b64", content=b64(gzip.compress(BINARY, mtime=0))),
        ),
    ],
)
def test_what_cannot_be_unpacked_is_hidden_whole(user_data: str) -> None:
    facts = facts_with(user_data)
    masked = saved(facts)
    assert b64(BINARY)[8:60] not in user_data_of(masked) and len(user_data_of(masked)) < 300
    assert ids(judge(masked).findings) == ids(judge(facts).findings)


CUT_LIST = (
    "#!/bin/bash\nexport DB_PASSWORD=hunter\n"
    "runcmd:\n  - [mysql, -phunter2, --password, 'hunter2hunter2']"
)


def base64_part(text: str, content_type: str = SHELL) -> str:
    headers = f"{content_type}\nContent-Transfer-Encoding: base64"
    return MIME.format(headers=headers, body=in_lines(b64(text)))


@pytest.mark.parametrize("content_type", [SHELL, CONFIG])
def test_no_part_of_a_gzip_that_is_cut_short_is_readable(content_type: str) -> None:
    packed_whole = gzip.compress(base64_part(CUT_LIST, content_type).encode(), mtime=0)
    for cut in range(1, len(packed_whole) - 12):
        facts = facts_with(b64(packed_whole[:-cut]))
        masked = saved(facts)
        text = everything(user_data_of(masked))
        assert "hunter" not in text and "assword" not in text, cut
        if cut in (1, 8, 9, 20, 100):
            assert ids(judge(masked).findings) == ids(judge(facts).findings), cut


def test_a_gzip_that_is_cut_short_is_hidden_inside_of_a_part() -> None:
    packed_part = gzip.compress(CUT_LIST.encode(), mtime=0)
    for cut in (1, 8, 9, 20, 30):
        headers = f"{SHELL}\nContent-Transfer-Encoding: base64"
        facts = facts_with(MIME.format(headers=headers, body=b64(packed_part[:-cut])))
        masked = saved(facts)
        assert "assword" not in everything(user_data_of(masked)), cut
        assert ids(judge(masked).findings) == ids(judge(facts).findings), cut


@pytest.mark.parametrize(
    "whole", [CUT_LIST, base64_part(CUT_LIST)], ids=["a script", "a part in base64"]
)
def test_a_text_that_is_cut_anywhere_leaves_no_secret(whole: str) -> None:
    for end in range(len(whole) + 1):
        assert "hunter" not in everything(mask_text(whole[:end])), end


@pytest.mark.parametrize("length", [0, 1, packed.MAX_UNPACKED, packed.MAX_UNPACKED + 1])
def test_gunzip_reads_up_to_its_limit_and_nothing_that_is_cut_short(length: int) -> None:
    whole = gzip.compress(b"a" * length, mtime=0)
    assert packed.gunzip(whole) == b"a" * min(length, packed.MAX_UNPACKED)
    assert packed.gunzip(whole[:-1]) is None or length >= packed.MAX_UNPACKED
    assert packed.gunzip(b"no gzip") is None


@pytest.mark.slow
def test_what_ec2_counts_is_kept_though_the_text_is_unpacked() -> None:
    long = MIME.format(headers=SHELL, body="#!/bin/bash\n" + "echo the same again\n" * 2000)
    assert "BY104" in ids(judge(facts_with(long)).findings)
    small = facts_with(b64(gzip.compress(long.encode(), mtime=0)))
    for facts in (small, saved(small), saved(saved(small))):
        assert "BY104" not in ids(judge(facts).findings)
    assert "BY104" in ids(judge(saved(facts_with(long))).findings)


def test_a_hosts_facts_keep_no_password() -> None:
    host = HostFacts(
        NOW,
        ecs_config='ECS_CLUSTER=x\nECS_ENGINE_AUTH_DATA={"r":{"auth":"aHVudGVyOmh1bnRlcg=="}}\n'
        "HTTP_PROXY=me:hunterP@proxy:3128\nDB_PASSWORD=hunter&1\n",
        processes=(Process(1, 0, "mysql -uroot -phunterM"),),
        daemon_json='{"token": 123456789}',
    )
    text = facts_json.dump(mask_facts(host))
    assert "hunter" not in text and "aHVudGVy" not in text and "123456789" not in text
    assert "ECS_CLUSTER=x" in text
    assert judge_host(mask_facts(host)).findings == judge_host(host).findings


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----" + "A" * 100_000,
        "-----BEGIN PRIVATE KEY-----" + " \n" * 50_000,
        "password" * 10_000,
        "a" * 100_000,
        "A" * 15 + "\n" * 100_000,
        ("A" * 76 + "\n") * 2_000,
        "content: " * 10_000,
        "docker login " * 1_000,
        "- " * 50_000,
        "\\" * 100_000,
        "password: \n" * 5_000,
        "Content-Transfer-Encoding: base64\n" * 1_500,
    ],
    ids=lambda text: repr(text[:24]),
)
def test_no_text_takes_long(text: str) -> None:
    with cpu_time.at_most(20):
        mask_text(text)


# -- masked facts give the same findings ----------------------------------------------------------

LINES = st.sampled_from(
    [
        "export DB_PASSWORD=hunter2hunter2",
        "export DB_PASSWORD=hunter",
        "export DB_PASSWORD=abc&&systemctl restart ecs",
        "API_TOKEN={{ vault }}",
        "API_KEY='abcdefgh12345'; systemctl restart docker",
        "# password: something that people choose",
        "# API_KEY=abcdef123456789",
        "token_secret: 24uysdfx1w4",
        "secretName: node-certificates",
        "DB=mysql://root:hunter2hunter2@db.example.org/x",
        "DB=mysql://${USER}:hunter2hunter2@db.example.org/x",
        "AKIAIOSFODNN7EXAMPLE",
        "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
        "SECRET_URL=postgres://me:hunter2hunter2@db.example.org/x",
        "tokens: [AKIAIOSFODNN7EXAMPLE, 2]",
        "curl -H 'Authorization: Bearer abcdefghijklmnop' http://169.254.169.254/latest/meta-data/",
        "curl -u me:hunter2hunter2 http://169.254.169.254/latest/meta-data/",
        "docker login -p hunter2hunter2 && systemctl restart docker",
        "mysql -phunter22a | systemctl restart ecs",
        "echo root:hunter2hunter2 | chpasswd",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nsystemctl restart ecs",
        "echo ECS_CLUSTER=hunter >> /etc/ecs/ecs.config",
        'cat > /etc/ecs/ecs.config <<END\nECS_ENGINE_AUTH_DATA={"r":{"auth":"abcdefgh1234"}}\nEND',
        'echo \'{"token": 123456789, "log-driver": "x"\' > /etc/docker/daemon.json',
        'cat > /etc/docker/daemon.json <<END\n{"token": 123456789}\nEND',
        "aws s3 cp s3://bucket-123456789012/x . --token hunter2hunter2",
        f"echo {b64(SECRET)} | base64 -d | bash",
        f"echo {b64('systemctl restart ecs # PASSWORD=hunter2')} | base64 -d > /x",
        "systemctl restart ecs",
        "reboot",
        "PASSWORD=\\",
        'PASSWORD="',
        "PASSWORD='a\nb'",
        "if [ -z $TOKEN ]; then",
        "fi",
        "yum install -y nvidia-driver-123456789012",
        "passwd: $6$rounds=4096$abcdefgh$hunterHASH",
        "password: hunter2hunter2",
        "password: |\n  hunter2hunter2",
        "chpasswd:\n  list: |\n    root:hunter2hunter2",
        "runcmd:\n  - systemctl restart ecs",
        "runcmd:\n  - [mysql, -phunter2, --password, 'hunter2hunter2']",
        "users:\n  - {name: a, password: hunter2hunter2, token: [1, 2]}",
        "write_files:\n- path: /etc/ecs/ecs.config\n  encoding: b64\n"
        f"  content: {b64('ECS_CLUSTER=x TOKEN=hunter22')}",
        f"write_files:\n- encoding: b64\n  content: {b64(BINARY)}\n  path: /etc/x",
        "A" * 16_000,
    ]
)
BODIES = st.lists(LINES, max_size=8).map("\n".join)
HEADS = st.sampled_from(
    ["#!/bin/bash\n", "#cloud-config\n", "", "#!/usr/bin/python3\n", "#cloud-boothook\n"]
)
TEXTS = st.tuples(HEADS, BODIES).map("".join)
AS_PART = st.sampled_from(
    [
        lambda text: MIME.format(headers=SHELL, body=text),
        lambda text: MIME.format(headers=CONFIG, body=text),
        lambda text: MIME.format(
            headers=f"{SHELL}\nContent-Transfer-Encoding: base64", body=in_lines(b64(text))
        ),
        lambda text: MIME.format(
            headers=f"{CONFIG}\nContent-Transfer-Encoding: base64", body=b64(text)
        ),
        lambda text: text,
    ]
)
AS_WHOLE = st.sampled_from(
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        b64,
        lambda text: b64(gzip.compress(text.encode(), mtime=0)),
        lambda text: b64(gzip.compress(b64(text).encode(), mtime=0)),
        lambda text: b64(gzip.compress(text.encode(), mtime=0)[:-20]),
    ]
)


@often
@given(TEXTS, AS_PART, AS_WHOLE)
@example(
    "#!/bin/bash\nwrite_files:\n- path: /etc/ecs/ecs.config\n  encoding: b64\n"
    "  content: RUNTX0NMVVNURVI9eCBUT0tFTj1odW50ZXIyMg==\nAKIAIOSFODNN7EXAMPLE",
    lambda text: MIME.format(headers=SHELL, body=text),
    str,
)
@example(
    "#!/bin/bash\nexport DB_PASSWORD=hunterZZZ0",
    lambda text: MIME.format(headers=SHELL, body=text),
    str,
)
@example(
    "#cloud-config\nplain_text_passwd: hunterZZZ9",
    lambda text: MIME.format(headers=CONFIG, body=text),
    str,
)
@example("AKIAIOSFODNN7EXAMPLE", str, str)  # could be base64, too
@example("w5/hunter2+Pn6/8\nAKIAIOSFODNN7EXAMPLE", str, str)
@example(
    CUT_LIST,
    base64_part,
    lambda text: b64(gzip.compress(text.encode(), mtime=0)[:-20]),
)
def test_masked_user_data_gives_the_same_findings(text: str, part: object, whole: object) -> None:
    assert callable(part) and callable(whole)
    facts = facts_with(whole(part(text)))
    masked = saved(facts)
    assert ids(judge(masked).findings) == ids(judge(facts).findings)
    assert "hunter2" not in everything(user_data_of(masked))
    assert "123456789012" not in everything(user_data_of(masked))


@often
@given(st.text(max_size=300) | st.lists(LINES | st.text(max_size=20), max_size=6).map("\n".join))
def test_what_is_sure_stays_sure_on_its_line_and_nothing_else_becomes_so(text: str) -> None:
    def sure(text: str) -> Counter[tuple[int, str]]:
        return Counter(
            (text.count("\n", 0, s.start), s.description)
            for s in secrets.find_secrets(text)
            if s.is_sure
        )

    assert sure(secrets.hide_secrets(text)) == sure(text)


WORDS = st.sampled_from(
    "CannotPullContainerError: token: expired secrets or registry auth: AccessDenied "
    "password=hunter2hunter2 ResourceInitializationError: no space left on device "
    "VcpuLimitExceeded InsufficientInstanceCapacity kms key: credential: Client.InternalError "
    "placement group arn:aws:iam::123456789012:role/x OutOfMemoryError "
    "UnfulfillableCapacity access_key: InvalidKMSKey token is not authorized secret".split()
)


@often
@given(st.lists(WORDS, max_size=10).map(" ".join), st.sampled_from(["RUNNABLE", "FAILED"]))
def test_masked_messages_give_the_same_findings(message: str, status: str) -> None:
    facts = facts_with("")
    assert isinstance(facts.environments, tuple)
    job = Job("j", status, status_reason=message, since_ms=NOW - 7_200_000)
    environment = replace(
        facts.environments[0],
        failures=(Activity(message),),
        status_reason=message,
        status="INVALID",
    )
    facts = replace(facts, subject=Subject("job", "j"), job=job, environments=(environment,))
    assert ids(judge(saved(facts)).findings) == ids(judge(facts).findings)

"""From facts to a report: waiting or stuck, missing facts, order, text, JSON, saved facts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from batchyard import ec2_types
from batchyard.batch.hosts import registered_mib
from batchyard.doctor import facts_json, show
from batchyard.doctor.checks import table
from batchyard.doctor.checks.environments import best_fit_strategy
from batchyard.doctor.checks.fit.candidates import Candidate
from batchyard.doctor.checks.launches import no_capacity
from batchyard.doctor.checks.network import no_route_to_aws
from batchyard.doctor.checks.queues import disabled as disabled_queue
from batchyard.doctor.checks.queues import invalid as invalid_queue
from batchyard.doctor.facts import (
    MAX_HOSTS,
    Dependency,
    Ending,
    Environment,
    Facts,
    FrontJob,
    Host,
    Job,
    Missing,
    Profile,
    Queue,
    Subject,
)
from batchyard.doctor.finding import Finding, Report, merge_places, sort_findings
from batchyard.doctor.host.checks.table import CHECKS as HOST_CHECKS
from batchyard.doctor.judge import judge
from batchyard.doctor.kinds import BY_ID
from batchyard.doctor.masking import mask_facts, mask_text
from batchyard.doctor.template.checks.table import CHECKS as TEMPLATE_CHECKS
from batchyard.doctor.userdata.commands import BLOCKING_SERVICE_START
from batchyard.errors import InputError

NOW = 1_700_000_000_000
ENVIRONMENT = Environment(
    "gpu",
    strategy="BEST_FIT_PROGRESSIVE",
    max_vcpus=8,
    desired_vcpus=8,
    instance_types=("g5.xlarge",),
    hosts=(),
)


def job(minutes: float, **changes: object) -> Facts:
    runnable = Job("j", "RUNNABLE", since_ms=int(NOW - minutes * 60_000), gpus=1, memory_mib=1000)
    return Facts(
        Subject("job", "j"),
        NOW,
        job=replace(runnable, **changes),  # type: ignore[arg-type]
        queue=Queue("q", environments=("gpu",)),
        environments=(ENVIRONMENT,),
        front=(FrontJob("other", "UNDETERMINED - x"), FrontJob("j")),
    )


def ids(report: Report) -> list[str]:
    return [finding.id for finding in report.findings]


# -- waiting, stuck ----------------------------------------------------------------------------


def test_a_job_that_waits_for_others_says_for_whom_however_long() -> None:
    waits = job(
        600, status="PENDING", depends_on=(Dependency("a", "RUNNING"), Dependency("b", "SUCCEEDED"))
    )
    report = judge(waits)
    assert (report.waiting, report.exit_code) == (
        "PENDING until 1 job that it depends on has ended: a (RUNNING)",
        0,
    )
    assert (
        show.to_lines(report)[0]
        == "job j: waiting: PENDING until 1 job that it depends on has ended: a (RUNNING)"
    )
    dead = job(
        600, status="PENDING", depends_on=(Dependency("a", "FAILED"), Dependency("b", "RUNNING"))
    )
    assert (ids(judge(dead)), judge(dead).waiting) == (["BY001"], "")


def test_a_job_that_runs_or_is_over_says_so() -> None:
    for status in ("RUNNING", "SUCCEEDED"):
        assert show.to_lines(judge(job(60, status=status))) == [f"job j: {status}, no findings"]
        assert show.to_json(judge(job(60, status=status)))["status"] == status


def test_the_same_about_several_environments_is_said_once() -> None:
    broken = replace(ENVIRONMENT, profile=Profile("p", exists=False))
    report = judge(replace(job(1), environments=(broken, broken)))
    assert [f.place for f in report.findings if f.id == "BY035"] == ["compute environment gpu"]
    finding = Finding(no_route_to_aws.KIND, "no way out", ("x",), ("y",))
    placed = [replace(finding, place=f"compute environment {name}") for name in ("a", "b", "a")]
    other = replace(finding, cause="another", place="queue q")
    assert merge_places([*placed, other]) == (
        replace(finding, place="compute environments a, b"),
        other,
    )


def test_what_a_command_said_is_found_by_its_stream() -> None:
    ended = Ending(
        3, "Essential container in task exited", example="j", log_stream="recon/default/1"
    )
    (finding,) = judge(job(1, status="FAILED", endings=(ended,), log_group="/lab")).findings
    assert (
        "aws logs get-log-events --log-group-name /lab --log-stream-name recon/default/1"
        in finding.remedy[0]
    )
    (finding,) = judge(
        job(1, status="FAILED", size=4, endings=(replace(ended, example="j:2", log_stream=""),))
    ).findings
    assert "aws batch describe-jobs --jobs j:2 " in finding.remedy[0]
    (finding,) = judge(job(1, status="FAILED", endings=(replace(ended, exit_code=137),))).findings
    assert "BY062" in finding.remedy[-1]


def test_a_type_that_would_do_is_named() -> None:
    (finding,) = [f for f in judge(job(1, memory_mib=16384)).findings if f.id == "BY015"]
    assert finding.remedy[1].endswith("--compute-resources instanceTypes=g5.xlarge,g5.2xlarge")
    (finding,) = [f for f in judge(job(1, memory_mib=2**22)).findings if f.id == "BY015"]
    # The list is replaced as a whole: what is there now stays in it.
    assert "instanceTypes=g5.xlarge,TYPE " in finding.remedy[1]


@pytest.mark.parametrize(("gib", "text"), [(2000, "2000GiB"), (2048, "2TiB"), (100, "100GiB")])
def test_memory_is_shown_as_it_was_asked_for(gib: int, text: str) -> None:
    (finding,) = [f for f in judge(job(1, memory_mib=gib * 1024)).findings if f.id == "BY015"]
    assert f"registers the {text} that" in finding.cause and f"({text})" in finding.evidence[0]


def test_a_job_that_waits_less_than_a_fleet_needs_is_waiting_and_symptoms_are_not_findings() -> (
    None
):
    report = judge(job(2))
    assert ids(report) == []
    assert report.waiting == "RUNNABLE for 2m; a fleet may take 15m to start"
    assert report.exit_code == 0


def test_a_job_that_waits_says_what_aws_says() -> None:
    reason = "Host EC2 (instance i-1) terminated."
    early = judge(job(2, status_reason=reason))
    assert early.waiting == f"RUNNABLE for 2m; AWS says: {reason}; a fleet may take 15m to start"
    assert early.status_reason == "" and early.findings == ()
    # Later it stands beside what is found, which does not have it.
    late = judge(job(40, status_reason=reason))
    assert late.findings and late.status_reason == reason
    assert (
        show.to_lines(late)[1] == f"  AWS says: {reason}" and show.to_json(late)["says"] == reason
    )
    # Of a job that has ended, the findings tell.
    assert judge(job(40, status="FAILED", status_reason=reason)).status_reason == ""


TOO_LARGE = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - higher than can be met"


@pytest.mark.parametrize(
    ("asks", "kind"),
    [
        ({"gpus": 0, "memory_mib": 512_000}, "BY015"),
        ({"gpus": 0, "vcpus": 64}, "BY014"),
        ({"gpus": 2}, "BY016"),
    ],
)
def test_what_aws_says_of_a_job_for_ones_own_instances_is_found_at_once(
    asks: dict[str, int], kind: str
) -> None:
    host = Host("i-1", vcpus=2, memory_mib=24_103, gpus=1)
    environment = Environment("own", is_managed=False, hosts=(host,))
    report = judge(replace(job(1, status_reason=TOO_LARGE, **asks), environments=(environment,)))
    assert ids(report) == [kind]
    assert report.findings[0].evidence[0] == TOO_LARGE
    assert report.findings[0].evidence[2] == "i-1 registers 2 vCPUs, 24,103 MiB, 1 GPUs"
    # Without AWS's word it is found too, and comes later: a larger one may join.
    (finding,) = judge(replace(job(1, **asks), environments=(environment,))).findings
    assert finding.id == kind and finding.rank > report.findings[0].rank
    assert finding.evidence[1] == "i-1 registers 2 vCPUs, 24,103 MiB, 1 GPUs"


# -- hosts of one's own ------------------------------------------------------------------------

WIDE = Host("i-w", "m6i.16xlarge", vcpus=64, memory_mib=30_000)
TALL = Host("i-t", "r6i.large", vcpus=2, memory_mib=100_000)
DENIED = Missing("access denied", "ecs:ListContainerInstances")


def judge_shape(*environments: Environment, **asks: Any) -> Report:
    """Judge a step of a pipeline at a queue with these environments."""
    shape = replace(Job("", "SUBMITTED", name="s"), **asks)
    return judge(Facts(Subject("queue", "q"), NOW, shape, Queue("q"), environments))


def make_unmanaged(hosts: tuple[Host, ...] | Missing, **changes: Any) -> Environment:
    return Environment("own", is_managed=False, hosts=hosts, **changes)


def test_a_step_that_a_host_can_hold_says_which() -> None:
    report = judge_shape(make_unmanaged((WIDE, TALL)), vcpus=2, memory_mib=100_000)
    assert (ids(report), report.fits) == ([], ("step s fits own: i-t (r6i.large)",))
    assert {"BY014", "BY015", "BY016", "BY017"} <= {kind.id for kind in report.passed}


def test_one_host_must_have_all_of_it() -> None:
    (finding,) = judge_shape(make_unmanaged((WIDE, TALL)), vcpus=8, memory_mib=50_000).findings
    assert (finding.id, finding.place) == ("BY015", "step s")
    assert finding.cause == (
        "no host in the cluster of own registers the 50,000 MiB beside 8 vCPUs "
        "that the job asks for"
    )
    assert finding.evidence == (
        "requests 8 vCPUs, 50,000 MiB, 0 GPUs",
        "i-t (r6i.large) registers 2 vCPUs, 100,000 MiB, 0 GPUs",
        "i-w (m6i.16xlarge) registers 64 vCPUs, 30,000 MiB, 0 GPUs",
    )
    assert "or ask for at most 30,000 MiB beside 8 vCPUs" in finding.remedy


def test_of_many_hosts_those_with_the_most_are_shown() -> None:
    many = tuple(Host(f"i-{n:02}", vcpus=n, memory_mib=1000) for n in range(1, 12))
    (finding,) = judge_shape(make_unmanaged(many), vcpus=12, memory_mib=500).findings
    assert [line.split()[0] for line in finding.evidence[1:]] == [
        "i-11",
        "i-10",
        "i-09",
        "i-08",
        "and",
    ]
    assert finding.evidence[-1] == "and 7 more with no more of it"


@pytest.mark.parametrize(
    "unseen",
    [
        make_unmanaged(DENIED),
        make_unmanaged(Missing("access denied", "ecs:DescribeContainerInstances")),
    ],
    ids=["list", "describe"],
)
def test_hosts_that_cannot_be_seen_are_said_with_the_action_that_is_missing(
    unseen: Environment,
) -> None:
    report = judge_shape(unseen, memory_mib=50_000)
    assert ids(report) == [] and report.fits == ()
    assert isinstance(unseen.hosts, Missing)
    not_run = {u.kind.id: (u.reason, u.action) for u in report.unseen}
    for kind in ("BY014", "BY015", "BY016", "BY017"):
        assert not_run[kind] == ("access denied", unseen.hosts.action)
    assert f"(allow {unseen.hosts.action})" in show.to_lines(report)[-1]


def test_hosts_that_can_be_seen_are_enough_only_if_one_is_large_enough() -> None:
    unseen = make_unmanaged(DENIED)
    assert "BY015" in {
        kind.id for kind in judge_shape(unseen, make_unmanaged((TALL,)), memory_mib=50_000).passed
    }
    assert ids(judge_shape(unseen, make_unmanaged((WIDE,)), memory_mib=50_000)) == []


def test_a_cluster_with_more_hosts_than_are_looked_at_proves_nothing() -> None:
    report = judge_shape(make_unmanaged((WIDE,) * MAX_HOSTS), memory_mib=50_000)
    assert ids(report) == []
    assert [u.reason for u in report.unseen if u.kind.id == "BY015"] == [
        "only the first 100 hosts of own were looked at"
    ]
    assert ids(judge_shape(make_unmanaged((WIDE,) * (MAX_HOSTS - 1)), memory_mib=50_000)) == [
        "BY015"
    ]


def test_a_host_that_tells_nothing_of_itself_is_not_held_against_anybody() -> None:
    report = judge_shape(make_unmanaged((WIDE, Host("i-q"))), memory_mib=50_000)
    assert (ids(report), report.fits) == ([], ())


def test_no_hosts_at_all_is_one_finding() -> None:
    report = judge_shape(make_unmanaged(()), memory_mib=50_000)
    assert ids(report) == ["BY055"]
    assert "BY015" not in {kind.id for kind in report.passed}


def test_hosts_of_an_environment_that_is_off_hold_nothing() -> None:
    off = make_unmanaged((TALL,), state="DISABLED")
    assert ids(
        judge_shape(off, replace(make_unmanaged((WIDE,)), name="on"), memory_mib=50_000)
    ) == ["BY015"]


def test_beside_an_environment_that_launches_one_that_fits_is_enough() -> None:
    managed = Environment(
        "cpu",
        strategy="BEST_FIT_PROGRESSIVE",
        max_vcpus=64,
        instance_types=("m6i.4xlarge",),
        hosts=(),
    )
    for asks in ({"memory_mib": 50_000}, {"memory_mib": 90_000, "vcpus": 2}):
        assert {"BY014", "BY015"}.isdisjoint(
            ids(judge_shape(make_unmanaged((TALL,)), managed, **asks))
        )
    findings = [
        f
        for f in judge_shape(make_unmanaged((TALL,)), managed, memory_mib=200_000).findings
        if f.id == "BY015"
    ]
    assert ["in the cluster of own" in f.cause for f in findings] == [False, True]


@pytest.mark.parametrize(
    "reason",
    [
        TOO_LARGE,
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - x",
        "MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED - x",
        "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS - x",
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - x",
    ],
)
@pytest.mark.parametrize(
    "environments",
    [
        Missing("access denied", "batch:DescribeComputeEnvironments"),
        (replace(ENVIRONMENT, instance_types=("z9x.large",)),),
        (Environment("serverless", kind="FARGATE", max_vcpus=8),),
        (
            Environment(
                "own",
                is_managed=False,
                hosts=Missing("access denied", "ecs:ListContainerInstances"),
            ),
        ),
        (replace(ENVIRONMENT, failures=Missing("no group")),),
    ],
)
def test_what_aws_says_of_a_blocked_job_is_never_kept_back(reason: str, environments: Any) -> None:
    report = judge(replace(job(1, status_reason=reason), environments=environments))
    with_reason = [
        finding for finding in report.findings if any(reason in line for line in finding.evidence)
    ]
    assert len(with_reason) == 1 and with_reason[0] is report.findings[0]
    assert {kind.id for kind in report.passed}.isdisjoint(
        ids(report)
    ) and report.status_reason == ""


def test_the_same_job_later_is_stuck() -> None:
    report = judge(job(40))
    assert {"BY011", "BY013"} <= set(ids(report))
    assert report.waiting == "" and report.exit_code == 1


def test_the_dwell_time_can_be_set() -> None:
    assert "BY013" in ids(judge(job(2), dwell_s=60))
    assert "BY013" not in ids(judge(job(40), dwell_s=3600))


def test_what_can_never_work_is_found_at_once() -> None:
    assert "BY016" in ids(judge(job(1, gpus=4)))


# -- what cannot be seen -----------------------------------------------------------------------


def test_a_check_without_its_facts_is_listed_with_the_action_that_is_missing() -> None:
    facts = replace(job(40), subnets=Missing("access denied", action="ec2:DescribeSubnets"))
    unseen = {u.kind.id: u for u in judge(facts).unseen}
    assert unseen["BY032"].reason == "access denied"
    assert unseen["BY032"].action == "ec2:DescribeSubnets"
    assert "BY032" not in {kind.id for kind in judge(facts).passed}


def test_where_the_subject_itself_is_missing_the_report_says_so() -> None:
    gone = Missing("access denied", "batch:DescribeJobs")
    facts = Facts(Subject("job", "j"), NOW, job=gone, queue=gone, environments=gone)
    report = judge(facts)
    assert report.exit_code == 2
    assert report.blind_reason == "access denied (batch:DescribeJobs)"
    assert "could not examine: access denied" in show.to_lines(report)[0]


def test_a_type_that_nobody_knows_is_said_to_be_unknown_and_not_guessed() -> None:
    facts = replace(job(40), environments=(replace(ENVIRONMENT, instance_types=("z9x.large",)),))
    report = judge(facts)
    assert "BY017" not in ids(report)
    assert any(
        u.kind.id == "BY017" and u.action == "ec2:DescribeInstanceTypes" for u in report.unseen
    )


def test_one_environment_that_cannot_be_seen_does_not_hide_what_is_found_in_another() -> None:
    bad = replace(ENVIRONMENT, name="bad", profile=Profile("p", exists=False))
    hidden = replace(
        ENVIRONMENT, name="hidden", profile=Missing("access denied", "iam:GetInstanceProfile")
    )
    assert "BY035" in ids(judge(replace(job(40), environments=(hidden, bad))))


def test_what_was_not_gathered_is_not_taken_for_what_is_not_there() -> None:
    assert "BY035" not in ids(judge(job(40)))
    assert "BY035" in ids(
        judge(replace(job(40), environments=(replace(ENVIRONMENT, profile=None),)))
    )


# -- order and words ---------------------------------------------------------------------------


def test_findings_are_sorted_by_likelihood_and_said_once() -> None:
    rare, common = Finding(best_fit_strategy.KIND, "a"), Finding(disabled_queue.KIND, "b")
    said_by_aws = Finding(no_capacity.KIND, "c", likelihood=100)
    assert sort_findings([rare, common, said_by_aws, common]) == (said_by_aws, common, rare)


def test_places_are_sorted_as_numbers() -> None:
    nine, ten = (
        Finding(BLOCKING_SERVICE_START, "a", place="f:9"),
        Finding(BLOCKING_SERVICE_START, "a", place="f:10"),
    )
    assert sort_findings([ten, nine]) == (nine, ten)


def test_the_report_for_people() -> None:
    finding = Finding(
        disabled_queue.KIND, "the queue is off", ("state DISABLED",), ("aws batch ...",), "queue q"
    )
    report = Report("job j", (finding,), (invalid_queue.KIND,), ())
    assert show.to_lines(report) == [
        "job j: 1 finding",
        "",
        "BY002 error: the queue is off",
        "  at queue q",
        "  - state DISABLED",
        "  > aws batch ...",
        "  see docs/findings/BY002.md, or: batchyard doctor explain BY002",
    ]
    assert "  BY003 the queue is valid" in show.to_lines(report, with_all=True)


def test_all_lists_what_could_not_be_checked_with_the_action() -> None:
    facts = replace(job(40), quotas=Missing("access denied", "servicequotas:GetServiceQuota"))
    text = "\n".join(show.to_lines(judge(facts), with_all=True))
    assert "access denied; allow servicequotas:GetServiceQuota" in text


def test_the_report_as_json() -> None:
    value = show.to_json(judge(job(40)))
    assert value["state"] == "findings"
    assert set(value["findings"][0]) == {
        "id",
        "severity",
        "cause",
        "evidence",
        "remedy",
        "place",
        "page",
    }
    assert json.loads(json.dumps(value)) == value


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    report = Report("x", (Finding(disabled_queue.KIND, "a\x1b[31mb", ("c\x07",), ("d",)),))
    assert all(line.isprintable() for line in show.to_lines(report))


# -- the table ---------------------------------------------------------------------------------


def test_every_kind_is_found_by_some_check_and_no_kind_by_two_of_a_table() -> None:
    in_facts = [kind.id for check in table.CHECKS for kind in check.kinds]
    in_hosts = [check.kind.id for check in HOST_CHECKS]
    in_templates = [kind.id for check in TEMPLATE_CHECKS for kind in check.kinds]
    for listed in (in_facts, in_hosts, in_templates):
        assert len(set(listed)) == len(listed)
    assert set(in_facts) | set(in_hosts) | set(in_templates) == set(BY_ID)


def test_there_are_many_kinds() -> None:
    assert len(BY_ID) >= 45


# -- the file ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no facts"),
        ('{"batchyard_facts": 9}', 'is of format "9"'),
        ('{"batchyard_facts": 1, "about": "x"}', "expected one of aws, host"),
        ('{"batchyard_facts": 1, "about": "aws", "facts": {}}', "facts.subject is missing"),
        (
            '{"batchyard_facts": 1, "about": "host", '
            '"facts": {"taken_ms": 1, "disks": [{"path": "/"}]}}',
            "facts.disks[0].total_mib is missing",
        ),
        (
            '{"batchyard_facts": 1, "about": "host", "facts": {"taken_ms": true}}',
            "facts.taken_ms: expected a whole number, found true",
        ),
        (
            '{"batchyard_facts": 1, "about": "host", "facts": {"taken_ms": 1, "odd": 2}}',
            'facts: unknown field "odd"',
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        facts_json.load(text, "f")
    assert message in caught.value.message


def test_missing_parts_survive_the_file() -> None:
    facts = replace(job(1), subnets=Missing("access denied", "ec2:DescribeSubnets"))
    assert facts_json.load(facts_json.dump(facts)) == facts


# -- masking -----------------------------------------------------------------------------------


def test_account_ids_are_masked_and_still_tell_apart() -> None:
    text = mask_text(
        "arn:aws:iam::123456789012:role/a arn:aws:iam::210987654321:role/b 123456789012"
    )
    assert text == "arn:aws:iam::000000000001:role/a arn:aws:iam::000000000002:role/b 000000000001"


def test_times_and_job_ids_are_left_alone() -> None:
    for text in ("1700000000000", "11111111-2222-3333-4444-123456789012", "i-0123456789abcdef0"):
        assert mask_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "export DB_PASSWORD=hunter2hunter2",
        '"apiKey": "abcdefgh12345"',
        "https://user:hunter2hunter2@example.org/x",
        "Authorization: Bearer abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    hidden = mask_text(text)
    assert "hidden" in hidden.lower()
    for secret in ("hunter2", "abcdefgh", "IOSFODNN"):
        assert secret not in hidden


def test_facts_are_masked_wherever_text_stands() -> None:
    dirty = replace(
        job(1),
        environments=(
            replace(
                ENVIRONMENT, status_reason="arn:aws:iam::123456789012:role/x is not authorized"
            ),
        ),
    )
    assert "123456789012" not in facts_json.dump(mask_facts(dirty))


# -- the catalogue -----------------------------------------------------------------------------


def test_instance_types_have_what_aws_says_they_have() -> None:
    types = ec2_types.TYPES
    assert (types["g5.12xlarge"].gpus, types["g5.16xlarge"].gpus) == (4, 1)
    assert (types["m5.8xlarge"].vcpus, types["m5.8xlarge"].memory_mib) == (32, 128 * 1024)
    assert (types["c5.18xlarge"].vcpus, types["c5.18xlarge"].memory_mib) == (72, 144 * 1024)
    assert (types["p4d.24xlarge"].gpus, types["p5.48xlarge"].vcpus) == (8, 192)
    assert types["g5g.xlarge"].architecture == "arm64"


def test_what_a_host_registers_is_estimated_below_its_nominal_memory() -> None:
    assert registered_mib(16 * 1024) == 15_660
    # Real ones: what the kernel is left with, of which AWS Batch keeps 32.
    assert registered_mib(8 * 1024, "m4.large") == 7985 - 32
    assert registered_mib(16 * 1024, "g5.xlarge") == 15_794 - 32
    # Measured, not listed: the estimate is within 2 %.
    for nominal, real in ((8192, 7787), (16384, 15_712), (131_072, 127_330), (393_216, 382_643)):
        assert abs(registered_mib(nominal) - (real - 32)) < 0.02 * nominal


def test_the_doctor_and_the_endpoint_agree_on_what_a_host_registers() -> None:
    for name in ("m6i.large", "g5.xlarge", "g4dn.12xlarge", "r5.4xlarge"):
        offered = ec2_types.registered_resources(name)
        assert offered is not None
        assert Candidate(ENVIRONMENT, ec2_types.TYPES[name]).memory_mib == offered.memory_mib


def test_families_and_words_stand_for_their_types() -> None:
    names = {t.name for t in ec2_types.expand(["g4dn"])}
    assert "g4dn.12xlarge" in names and "g4dn.metal" not in names
    assert not any(t.gpus for t in ec2_types.expand(["optimal", "default_arm64"]))
    assert ec2_types.expand([]) == ec2_types.expand(["default_x86_64"])


def test_a_type_that_does_not_exist_is_told_from_one_that_is_not_known() -> None:
    assert ec2_types.is_known("m3.2xlarge") is True
    assert ec2_types.is_known("m3.8xlarge") is False
    assert ec2_types.is_known("x99z.16xlarge") is None


@pytest.mark.parametrize(
    ("name", "is_spot", "code"),
    [
        ("g5.xlarge", False, "L-DB2E81BA"),
        ("g5.xlarge", True, "L-3819A6DF"),
        ("p5.48xlarge", True, "L-C4BD4855"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", False, "L-417A185B"),
        ("m5.large", False, "L-1216C47A"),
        ("im4gn.large", True, "L-34B43A08"),
        ("gr6.4xlarge", False, "L-DB2E81BA"),
        # others than those of AWS's standard families have quotas of their own
        ("x2idn.16xlarge", False, ""),
        ("inf2.xlarge", False, ""),
        ("trn1.2xlarge", True, ""),
        ("p6-b200.48xlarge", True, ""),
    ],
)
def test_each_type_counts_against_its_quota(name: str, is_spot: bool, code: str) -> None:
    assert ec2_types.quota_code(name, is_spot) == code

"""Environments are known by their stacks; what is there in part is told with what mends it."""

from __future__ import annotations

import pytest

from batchyard.infra import listing


def summary(
    stack: str, state: str = "CREATE_COMPLETE", description: str = "batchyard: one of ours"
) -> dict[str, str]:
    return {"StackName": stack, "StackStatus": state, "TemplateDescription": description}


def test_environments_are_known_by_their_stacks() -> None:
    found = listing.find_environments(
        [
            summary("lab-1-batch-unmanaged"),
            summary("dev-batch", "UPDATE_ROLLBACK_COMPLETE"),
            summary("dev-network"),
            summary("dev-iam", "ROLLBACK_COMPLETE"),
            # somebody else's, though they are called like ours
            summary("shop-storage", description="the shop's tables"),
            {"StackName": "shop-batch", "StackStatus": "CREATE_COMPLETE"},
            summary("other"),
            # for a change that was never made
            summary("new-network", "REVIEW_IN_PROGRESS"),
        ]
    )
    assert list(found) == ["dev", "lab-1"]
    assert (found["dev"].templates, found["dev"].unfinished) == (
        ["network", "batch"],
        {"iam": "ROLLBACK_COMPLETE"},
    )
    assert found["dev"].missing == ["storage", "iam", "registry"]
    assert found["lab-1"].templates == ["batch-unmanaged"]


CORE = dict.fromkeys(("network", "storage", "iam", "registry", "batch"), "CREATE_COMPLETE")


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (CORE, ""),
        ({**CORE, "batch": "UPDATE_IN_PROGRESS"}, ""),
        (
            {"network": "CREATE_COMPLETE"},
            (
                "in part only: storage, iam, registry, batch missing; `batchyard deploy --env "
                "dev` completes it"
            ),
        ),
        (
            {"network": "CREATE_COMPLETE", "storage": "CREATE_IN_PROGRESS"},
            "in part only: storage is CREATE_IN_PROGRESS; iam, registry, batch missing; "
            "`batchyard deploy --env dev` completes it",
        ),
        (
            {**CORE, "ecs": "ROLLBACK_COMPLETE"},
            "in part only: ecs is ROLLBACK_COMPLETE; `batchyard deploy ecs --env dev` completes it",
        ),
        ({**{name: CORE[name] for name in CORE if name != "batch"}, "ecs": "CREATE_COMPLETE"}, ""),
        (
            {"network": "CREATE_COMPLETE", "spotfleet": "CREATE_COMPLETE"},
            "in part only: storage, iam, registry missing; `batchyard deploy storage iam registry"
            " --env dev` completes it",
        ),
        (
            {"batch": "DELETE_FAILED", "network": "CREATE_COMPLETE"},
            "in part only: batch is DELETE_FAILED; `batchyard destroy --env dev` deletes the rest",
        ),
        (
            {"gpu-batch-benchmark": "CREATE_COMPLETE"},
            "not for pipelines; `batchyard deploy --env dev` adds what they need",
        ),
    ],
)
def test_what_an_environment_lacks(states: dict[str, str], said: str) -> None:
    assert listing.describe_problem("dev", listing.DeployedEnvironment(states)) == said

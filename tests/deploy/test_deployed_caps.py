"""The stack `caps` at the endpoint: its function, the rule that calls it, and a budget."""

from __future__ import annotations

import pytest
from site_of_stacks import Site


@pytest.mark.slow
def test_the_stack_caps_is_deployed_and_removed(site: Site) -> None:
    site.about("deploy", "network", "storage", "--yes")
    site.about(
        *("deploy", "caps", "--yes", "--set", "MonthlyBudgetUsd=500"),
        *("--set", "BudgetEmail=you@example.org"),
    )
    name = f"{site.env}-keep-caps"
    function = site.endpoint.client("lambda").get_function(FunctionName=name)["Configuration"]
    assert function["Handler"] == "index.handler"
    bucket = site.outputs()["Bucket"]
    assert function["Environment"]["Variables"]["BUCKET"] == bucket
    events = site.endpoint.client("events")
    (rule,) = [
        rule
        for rule in events.list_rules()["Rules"]
        if rule.get("ScheduleExpression") == "rate(1 minute)"
    ]
    (target,) = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert target["Arn"] == function["FunctionArn"]
    site.about("destroy", "caps", "--yes")
    assert f"{site.env}-caps" not in site.stacks()

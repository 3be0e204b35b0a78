"""One task of Airflow: its EcsRunTaskOperator runs the words of the command line and waits.

The first words are the task definition and the overrides as JSON.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from airflow.providers.amazon.aws.operators.ecs import EcsRunTaskOperator


class TaskInstance:
    """What the operator uses of a task instance."""

    task_id, dag_id, run_id, map_index = "task", "dag", "run", -1

    def xcom_push(self, key: str, value: Any) -> None:
        print(key, value)


operator = EcsRunTaskOperator(
    task_id="task",
    cluster="peers",
    task_definition=sys.argv[1],
    launch_type="EC2",
    overrides=json.loads(sys.argv[2]),
    awslogs_group="/ecs/airflow",
    awslogs_region="us-east-1",
    awslogs_stream_prefix="run/main",
    awslogs_fetch_interval=timedelta(seconds=1),
    container_name="main",
    reattach=True,
    waiter_delay=1,
    aws_conn_id=None,
    region_name="us-east-1",
)
instance = TaskInstance()
print("finished", operator.execute({"ti": instance, "task_instance": instance}))

"""One task of Airflow: its BatchOperator submits the words of the command line and waits."""

from __future__ import annotations

import sys
from typing import Any

from airflow.providers.amazon.aws.operators.batch import BatchOperator


class TaskInstance:
    """What the operator uses of a task instance, for links in Airflow's pages."""

    task_id, dag_id, run_id, map_index = "task", "dag", "run", -1

    def xcom_push(self, *values: Any, **named: Any) -> None:
        pass


operator = BatchOperator(
    task_id="task",
    job_name="airflow",
    job_queue="peers",
    job_definition="airflow",
    container_overrides={"command": sys.argv[1:]},
    retry_strategy={"attempts": 2},
    aws_conn_id=None,
    region_name="us-east-1",
    poll_interval=1,
)
instance = TaskInstance()
print("finished", operator.execute({"ti": instance, "task_instance": instance}))

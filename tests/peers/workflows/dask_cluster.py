"""A cluster of dask-cloudprovider: scheduler and workers are tasks of ECS on Fargate.

The words of the command line are the VPC, one of its subnets and a log group.
"""

from __future__ import annotations

import sys

from dask.distributed import Client
from dask_cloudprovider.aws import FargateCluster


def square(number: int) -> int:
    return number * number


def main(vpc: str, subnet: str) -> None:
    cluster = FargateCluster(
        image="daskdev/dask:latest",
        n_workers=2,
        scheduler_cpu=256,
        scheduler_mem=512,
        worker_cpu=256,
        worker_mem=512,
        worker_nthreads=1,
        vpc=vpc,
        subnets=[subnet],
        fargate_use_private_ip=True,
    )
    with cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=300)
        print("workers", len(client.scheduler_info()["workers"]))
        print("sum", sum(client.gather(client.map(square, range(10)))))


if __name__ == "__main__":
    main(*sys.argv[1:])

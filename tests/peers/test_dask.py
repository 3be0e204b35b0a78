"""dask-cloudprovider from PyPI: scheduler and workers of a cluster are tasks of ECS, as processes.

The tasks have the network of this machine, so the VPC has addresses of the loopback interface.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

from emulator_endpoint import until
from peer_clients import HERE, Peer, said


def test_a_cluster_computes_and_its_tasks_end(begin: Callable[..., Peer]) -> None:
    peer = begin("dask", "process")
    shutil.copy(HERE / "workflows" / "dask_cluster.py", peer.folder)
    ec2, ecs = (peer.endpoint.client(service) for service in ("ec2", "ecs"))
    vpc = ec2.create_vpc(CidrBlock="127.20.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="127.20.1.0/24")["Subnet"]["SubnetId"]
    done = peer.run("python", "dask_cluster.py", vpc, subnet)
    assert done.returncode == 0, said(done)
    assert "workers 2" in done.stdout
    assert "sum 285" in done.stdout
    for cluster in ecs.list_clusters()["clusterArns"]:
        assert ecs.list_tasks(cluster=cluster)["taskArns"] == []
    until(
        lambda: ec2.describe_network_interfaces()["NetworkInterfaces"],
        lambda interfaces: not any(entry["VpcId"] == vpc for entry in interfaces),
    )

"""Findings about a job that is larger than every host of its queue: BY012 and BY014 to BY017.

The five findings share this folder because they come from one computation. It asks in turn for
GPUs, vCPUs, memory and maxvCpus; the first request that no instance type, and no host, satisfies
is the finding.
"""

"""The workloads that come with batchyard, a small file each. They compute with what they are given, nothing else."""

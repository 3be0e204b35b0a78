"""The built-in workloads, one small file each."""

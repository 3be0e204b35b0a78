"""What children use of their host: samples of CPU, memory and GPUs, taken every few seconds.

The worker has a copy of this package: Python 3.10 and the standard library.
"""

"""The checks of jobs, queues and environments: one file for a finding."""

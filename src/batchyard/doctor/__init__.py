"""Why a job is stuck, and whether a node is right: facts in, findings out."""

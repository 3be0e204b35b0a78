"""A small parallel-beam tomography reconstruction, with one module for each step.

The order of the steps: phantom and detector (simulate the scan) -> correct -> ramp and centre ->
backproject -> figure. The module `scan` holds the geometry that all steps share.

These modules compute on arrays. Except `figure`, they do not read or write files. The module
`files` knows the path of every file, and `__main__` connects files and computation.
"""

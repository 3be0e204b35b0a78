"""A small parallel-beam tomography reconstruction, one module a step.

scan (the geometry) <- phantom, detector (simulate) -> correct -> ramp, centre -> backproject -> figure.
Those modules compute on arrays and, `figure` apart, touch no files; `files` knows every path; `__main__`
joins the two.
"""

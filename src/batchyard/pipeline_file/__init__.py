"""Read a pipeline file as a ``Pipeline``, with every mistake reported at once.

``reading`` is the entry point. It reads only the files that the user names, and executes nothing.
"""

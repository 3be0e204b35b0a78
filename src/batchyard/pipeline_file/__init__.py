"""From a file to a ``Pipeline``: reading YAML with places, checking values, telling every mistake at once.

``reading`` is the way in. Reads only the files that the user named; runs nothing.
"""

"""The checks: pure functions from facts to findings, small families to a file. ``table`` lists them all."""

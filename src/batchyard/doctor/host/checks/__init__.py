"""The checks of a host: one file for a finding."""

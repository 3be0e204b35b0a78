"""The checks of templates: one file for a finding."""

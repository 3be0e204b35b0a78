"""moto's CloudFormation, with AWS Batch's resource types and with what moto gets wrong corrected.

Every correction names the version of moto that needs it ("moto 5.2.5: ..."). With a newer moto,
try it without the correction; tests/emulator/test_moto_corrections.py shows which are still needed.
"""

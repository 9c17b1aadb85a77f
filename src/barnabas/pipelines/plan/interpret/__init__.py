"""What a plan means, in plain Python: for tests of pipelines and of the compiler.

An interpreter reads records and says what each relation holds. It defines rather than optimises: a table is computed anew
from the records below it. What it does not know, it refuses with NotInterpreted.
"""

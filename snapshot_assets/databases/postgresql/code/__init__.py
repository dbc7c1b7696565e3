"""Code of a database: functions, triggers and other objects that a snapshot holds as the server's own text.

`kinds.py` lists the kinds. `read.py` reads them, with the statements of `statements.py`, and `needs.py` reads what
each object depends on. `ddl/code.py` creates them in a target, if the user asks for it.
"""

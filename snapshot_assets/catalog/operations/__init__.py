"""Operations that change or clean a location. Each decides on the state, commits, and only then deletes objects.

Operations that delete or rewrite have two parts. `plan_…` reads, and returns an immutable plan; `execute_…` carries it
out, on a catalog that is opened for writing, and returns the plan with what was really done and its revision. Execution
never deletes more than was planned: if the head moved, it does less, or refuses.
"""

"""The conflict table: for each kind of change, the actions to commit on a newer head, or the reason to refuse.

Rules are functions from a state to actions. A writer that loses the race for a revision runs its rule again on the new
head. `preconditions` holds the checks that every rule shares.
"""

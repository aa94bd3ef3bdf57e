"""What differs between a branch and its source, and which of it a user may apply.

``changeset`` lists the changes, ``selection`` the part that was chosen, ``risks`` those that can
run something on the user's machine. Nothing here writes.
"""

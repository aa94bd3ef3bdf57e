"""The agent programs that can be guarded: where their hooks are, and what these report.

A program that is not listed needs a module here, of ``AgentHooks`` and the names of its tools.
"""

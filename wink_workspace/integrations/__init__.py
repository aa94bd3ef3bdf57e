"""Workspaces in other agent frameworks: one module for each framework.

Each module implements interfaces of its framework with ``Workspace.call``, the registry of
sandboxes and our own tools, so every change is a call. This package imports no framework; import
the module that you need, such as ``wink_workspace.integrations.pydantic_ai``.

Rule 1: a module imports its framework in a block of ``frameworks.importing``, at its top. So an
import without the extra raises an error that names the extra, and a version outside of the
tested range gives one warning. fsspec needs no extra.
Rule 2: only that module imports the framework; import-linter checks it.
Rule 3: an integration starts no tracing and no telemetry.
"""

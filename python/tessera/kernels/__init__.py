# SPDX-License-Identifier: MIT
"""Message-passing operations: one set of names, several implementations."""

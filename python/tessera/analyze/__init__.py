# SPDX-License-Identifier: MIT
"""What a run did: distributions, contacts and bonds from its trajectory; temperature and drift from its log."""

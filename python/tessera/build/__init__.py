# SPDX-License-Identifier: MIT
"""Structures for simulations: water, aqueous KCl, a protein in water, a capsid (numpy only, all in memory O(N))."""

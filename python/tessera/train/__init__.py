# SPDX-License-Identifier: MIT
"""Training of E2Former V2 on energies, forces and stresses: `tessera-train config.yaml`."""

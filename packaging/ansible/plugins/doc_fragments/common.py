# Copyright 2026, the ollamactl maintainers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations


class ModuleDocFragment:
    """What all modules of the collection share."""

    DOCUMENTATION = r"""
options:
  unit:
    description:
      - Name of the systemd service, where several run Ollama on the host.
    type: str
  executable:
    description:
      - Path of C(ollamactl) on the target, where it is in none of the usual folders.
    type: path
requirements:
  - ollamactl on the target (the role P(ollamactl.host.ollamactl#role) installs it)
author:
  - The ollamactl maintainers (@ollamactl)
"""

    READS = r"""
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
    support: none
    details:
      - Nothing is changed.
  platform:
    description: Target OS/families that can be operated against.
    support: full
    platforms: linux
options: {}
"""

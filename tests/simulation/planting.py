"""A plug-in of pytest that plants one bug: `OTTLA_PLANTED=NAME python -m pytest -p tests.simulation.planting TEST`.

For bugs that random seeds do not find: the schedule that is listed beside such a bug has to fail.
"""

from __future__ import annotations

import os

from tests.simulation.one_mutant import PLANTED, plant

# At the import, because a drawn bug has to come before the first import of its module.
plant(os.environ[PLANTED])

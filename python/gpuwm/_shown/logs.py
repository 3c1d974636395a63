"""The package's loggers. They are silent unless the program asks. INFO: what the package did."""

from __future__ import annotations

import logging

logging.getLogger("gpuwm").addHandler(logging.NullHandler())

attach = logging.getLogger("gpuwm.attach")
client = logging.getLogger("gpuwm.client")
park = logging.getLogger("gpuwm.park")
publish = logging.getLogger("gpuwm.publish")
switch = logging.getLogger("gpuwm.switch")

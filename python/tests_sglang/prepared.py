"""What has to be so before SGLang is imported: nothing is compiled, SGLang runs on the CPU, its
imports may warn, and packages that it lacks here have stand-ins."""

import os
import warnings

from . import stubs

os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
warnings.simplefilter("ignore")
stubs.install()

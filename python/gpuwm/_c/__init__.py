"""libgpuwm-client through ctypes: its functions and structures, and the objects that own what it
returns. Nothing here needs torch or NumPy."""

"""The name of the load format."""

FORMAT = "gpuwm"  # the value of --load-format

"""Versions that this process makes: the tensors that it publishes (`sources`), a publish of the C
library (`making`), and the functions that users call (`publish`)."""

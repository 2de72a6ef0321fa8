"""One typed schema for each file of a run and of a comparison, used to write it and to read it."""

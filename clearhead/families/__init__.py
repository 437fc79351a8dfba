"""The families: a name in, a spec out. One short file of data each."""

"""LOG: Steps in; timers, rows, run folders and figures out. Imports nothing heavy."""

"""Code that several commands share: flags, run folders, claims, timelines."""

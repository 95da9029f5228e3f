"""What several commands share: flags, run folders, claims, timelines."""

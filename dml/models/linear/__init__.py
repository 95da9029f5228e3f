"""Linear models whose columns are divided over ranks. Chapter: docs/dimensions.md."""

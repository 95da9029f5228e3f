"""Problems whose examples touch few rows of one table."""

"""What sources outside the database share: one HTTP client, guarded page fetching, and answers as hits."""

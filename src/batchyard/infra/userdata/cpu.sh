say "user data ends"

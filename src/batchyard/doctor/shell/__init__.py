"""What a shell script would run, without running it: text -> tree -> the commands it comes to. Pure."""

"""What the project is made of, and whether anything is known against it."""

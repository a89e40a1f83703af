"""What the project's image is made by."""

"""What docker-compose.yml mounts into the project's own image."""

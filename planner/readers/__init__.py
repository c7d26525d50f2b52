"""Files of the user and of others, read into checked values."""

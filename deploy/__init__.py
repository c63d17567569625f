"""What a release is made of, and the files with which it is deployed."""

"""Values as text: Java's formats, durations and memory sizes."""

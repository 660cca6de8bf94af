"""HTTP: calls and answers, who may make them, and the limits of both."""

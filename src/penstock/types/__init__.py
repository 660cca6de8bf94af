"""Declared types: coercion, type signatures, serializers, compatibility and Arrow columns."""

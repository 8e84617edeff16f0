"""Glue: the loop around the pure layers."""

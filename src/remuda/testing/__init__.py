"""Fakes and tiny real parts that ship with the product."""

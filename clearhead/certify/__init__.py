"""The certificate: a checkpoint folder in, proof that its numbers are right out."""

from .certificate import Certificate, Row, certify

__all__ = ["Certificate", "Row", "certify"]

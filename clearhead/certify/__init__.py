"""The certificate: a checkpoint folder in, proof that its numbers are right out."""

from .certificate import Certificate, CertificateRow, certify

__all__ = ["Certificate", "CertificateRow", "certify"]

"""The part of a federation's kits that signs and checks, made in a moment: no FLARE needed."""

import datetime
import functools
import json

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


@functools.cache
def key(of):
    return rsa.generate_private_key(65537, 2048)


def certificate(root, name, days=365, federation="fedvine"):
    """A certificate of ``name`` signed by the key ``root``; over already if ``days`` is below 0."""
    now = datetime.datetime.now(datetime.UTC)
    title, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)])
                     for n in (name, federation))
    return (x509.CertificateBuilder().subject_name(title).issuer_name(issuer)
            .public_key(key(name).public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=400))
            .not_valid_after(now + datetime.timedelta(days=days)).sign(key(root), hashes.SHA256()))


def kit(folder, name, root="fedvine", days=365, server="hub.example"):
    """A kit's startup folder; ``server`` is who the site's kit says the server is."""
    own, kind = folder / name / "startup", "server" if name == server else "client"
    own.mkdir(parents=True)
    (own / f"{kind}.key").write_bytes(key(name).private_bytes(
        PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()))
    (own / f"{kind}.crt").write_bytes(certificate(root, name, days).public_bytes(PEM))
    (own / "rootCA.pem").write_bytes(certificate(root, root).public_bytes(PEM))
    (own / "fed_client.json").write_text(json.dumps({"servers": [{"identity": server}]}))
    (folder / name / "fedvine.json").write_text(json.dumps({"format": 1, "name": name}))
    return folder / name


def as_a_server(kit):
    """A site's kit as :class:`fedvine.federation.signed.Signer` wants it: its key, its
    certificate."""
    for end in ("key", "crt"):
        (kit / "startup" / f"server.{end}").write_bytes(
            (kit / "startup" / f"client.{end}").read_bytes())
    return kit

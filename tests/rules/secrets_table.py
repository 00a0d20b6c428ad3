"""Shapes of secrets, and failures that have none: what redaction is measured by.

`{}` stands for the secret, which is looked for afterwards; a shape without it is the secret itself.
"""

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

CANARY = "Zx9-canary-77"


def _read(name: str) -> str:
    return (Path(__file__).parent / "secrets" / f"{name}.txt").read_text()


KEYS = _read("keys").split()

OTHER_KEYS = _read("other_keys").split()

TEXTS = [
    line.replace("\\r", "\r").replace("\\n", "\n")
    for line in _read("texts").splitlines()
]

_WORD = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD" * 4
_HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9" * 4
_UPPER = "A2B3C4D5E6F7G2H3" * 4

CREDENTIALS = [
    *(f"gh{kind}_{_WORD[:36]}" for kind in "pousr"),
    f"github_pat_{_WORD[:22]}_{_WORD[:59]}",
    *(
        f"gl{kind}-{_WORD[:20]}"
        for kind in ("pat", "dt", "rt", "cbt", "ptt", "ft", "soat")
    ),
    *(f"{kind}{_UPPER[:16]}" for kind in ("AKIA", "ASIA", "ABIA", "ACCA", "A3TX")),
    f"AIza{_WORD[:35]}",
    f"ya29.{_WORD[:60]}",
    f"GOCSPX-{_WORD[:28]}",
    f"sk-{_WORD[:48]}",
    f"sk-proj-{_WORD[:64]}",
    f"sk-ant-api03-{_WORD[:64]}",
    *(f"{kind}_{_WORD[:24]}" for kind in ("sk_live", "sk_test", "pk_live", "rk_live")),
    f"npm_{_WORD[:36]}",
    f"pypi-AgEIcHlwaS5vcmc{_WORD[:60]}",
    f"rubygems_{_HEX[:48]}",
    f"dckr_pat_{_WORD[:27]}",
    f"whsec_{_WORD[:32]}",
    *(f"xox{kind}-1234567890-{_WORD[:24]}" for kind in "bpars"),
    f"xapp-1-A0123456789-1234567890123-{_HEX[:64]}",
    f"M{_WORD[:23]}.{_WORD[:6]}.{_WORD[:27]}",
    f"123456789:{_WORD[:35]}",
    f"SG.{_WORD[:22]}.{_WORD[:43]}",
    f"key-{_HEX[:32]}",
    f"{_HEX[:32]}-us12",
    f"SK{_HEX[:32]}",
    f"sq0atp-{_WORD[:22]}",
    f"shpat_{_HEX[:32]}",
    f"dop_v1_{_HEX[:64]}",
    f"dp.pt.{_WORD[:43]}",
    f"hf_{_WORD[:34]}",
    f"hvs.{_WORD[:24]}",
    f"s.{_WORD[:24]}",
    f"{_HEX[:14]}.atlasv1.{_WORD[:64]}",
    f"dapi{_HEX[:32]}",
    f"lin_api_{_WORD[:40]}",
    f"PMAK-{_HEX[:24]}-{_HEX[:34]}",
    f"NRAK-{_UPPER[:27]}",
    f"glsa_{_WORD[:32]}_{_HEX[:8]}",
    f"ATATT3xFfGF0{_WORD[:60]}",
    f"AGE-SECRET-KEY-1{_UPPER[:58]}",
    f"tskey-auth-{_WORD[:24]}",
    f"gsk_{_WORD[:52]}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    f"eyJhbGciOiJSU0EtT0FFUCJ9.{_WORD[:20]}.{_WORD[:16]}.{_WORD[:20]}.{_WORD[:16]}",
    "4111 1111 1111 1111",
    "4111111111111111",
    "4111.1111.1111.1111",
    "4111  1111  1111  1111",
    "4111\u00a01111\u00a01111\u00a01111",
    "4111\u20091111\u20091111\u20091111",
    "41 1111 1111 1111 11",
    "5500-0000-0000-0004",
    "3782 822463 10005",
    "6011111111111117",
    "3530111333300000",
    "30569309025904",
    "DE89370400440532013000",
    "DE89 3704 0044 0532 0130 00",
    "GB82 WEST 1234 5698 7654 32",
    "FR14 2004 1010 0505 0001 3M02 606",
]
"""Secrets by their form alone."""

DISGUISED = [
    "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44={}",  # full-width
    "p\u0430ssword={}",  # Cyrillic a
    "\u0440\u0430ssw\u043erd: {}",
    "t\u043eken={}",
    "s\u0435cret={}",
    "\u0430pi_k\u0435y={}",
    "\u0410PI_KEY={}",
    "p\u03b1ssw\u03bfrd={}",  # Greek
    "t\u03bfken: {}",
    "T\u039fKEN={}",
    "pass\u200bword={}",  # zero-width space, joiners, byte order mark, soft hyphen
    "pass\u200cword={}",
    "pass\u200dword={}",
    "pass\ufeffword={}",
    "pass\u00adword={}",
    "pass\u2060word={}",
    "\u202epassword\u202c={}",  # bidi
    "\u2066token\u2069={}",
    "pass\u200eword: {}",
    "p\u0301assword={}",  # combining marks
    "pässwörd={}",
    "passwo\ufe0frd={}",
    "\u1d18\u1d00\ua731\ua731word={}",  # small capitals
    # mathematical
    "\U0001d429\U0001d41a\U0001d42c\U0001d42c\U0001d430\U0001d428\U0001d42b\U0001d41d={}",
    "\u24df\u24d0\u24e2\u24e2\u24e6\u24de\u24e1\u24d3={}",  # circled
    "password\uff1d{}",  # full-width signs
    "password\uff1a{}",
    "password\ufe55 {}",
    "password\u00a0=\u00a0{}",
    "--pass\u200bword {}",
    "https://user:{}\uff20api.example",
    "Authorizat\u0131on: Bearer {}",  # dotless i
    "B\u0435arer {}",
    "\u0421ookie: sid={}",
    "<p\u0430ssword>{}</p\u0430ssword>",
    "pass\x00word={}",
    "to\x1bken={}",
    '{{"p\u0430ssword": "{}"}}',
    '{{"\uff54oken": ["{}"]}}',
    "DETAIL:  Key (em\u0430il)=({}) already exists.",
]
"""Names and signs in letters that are not what they seem."""

_FAILURES = _read("failures").splitlines()
_WORDS = (
    "invoice",
    "order",
    "billing",
    "mailer",
    "ledger",
    "shop",
    "search",
    "import",
    "export",
    "report",
    "stock",
    "media",
)
_NAMES = (
    "price",
    "amount",
    "line_items",
    "customer_id",
    "sent_at",
    "total",
    "address",
    "quantity",
    "currency",
)


def ordinary(times: int = 10) -> Iterator[str]:
    """Messages of failures as they are met, without any secret."""
    chance = random.Random(11)
    for template in _FAILURES * times:
        yield template.format_map(_Fill(chance))


class _Fill(dict[str, object]):
    def __init__(self, chance: random.Random) -> None:
        bits = chance.getrandbits
        super().__init__(
            word=chance.choice(_WORDS),
            name=chance.choice(_NAMES),
            Name=chance.choice(("Ada", "Grace", "Edsger")),
            n=chance.randrange(10_000_000),
            b=chance.randrange(2, 254),
            m=chance.randrange(10, 13),
            d=chance.randrange(1, 10),
            h=chance.randrange(10, 24),
            mi=chance.randrange(10, 60),
            port=chance.randrange(1_024, 65_536),
            account=chance.randrange(10**11, 10**12),
            order=f"2026-{chance.randrange(10**8):08}",
            ns=1_763_800_000_000_000_000 + bits(50),
            ms=1_763_800_000_000 + bits(30),
            uuid=uuid.UUID(int=bits(128)),
            hex=f"{bits(64):016x}",
            hex2=f"{bits(8):02x}",
            hex6=f"{bits(24):06x}",
            md5=f"{bits(128):032x}",
            commit=f"{bits(160):040x}",
            sha=f"{bits(256):064x}",
        )

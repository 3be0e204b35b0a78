"""Takes secrets and account ids out of facts, so that they can be given away. Pure.

What is packed is unpacked, masked and packed again; what cannot be unpacked is hidden whole. Masked facts are judged as
the facts themselves: what takes the place of a secret has its form. Account ids become 000000000001, 000000000002 ...
in the order in which they are met: two that differ still differ.
"""

from __future__ import annotations

import base64
import gzip
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from batchyard.doctor import packed, secrets
from batchyard.doctor.facts import LaunchTemplate
from batchyard.doctor.userdata import parts

T = TypeVar("T")
Accounts = dict[str, str]

#: not the last part of a UUID, not a fraction, not a piece of a longer number or of hexadecimal digits
_ACCOUNT = re.compile(
    r"(?<![0-9a-fA-F])(?<!\d\.)(?<![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-)"
    r"(\d{12})(?![0-9a-fA-F])"
)
#: as the console shows it
_DASHED_ACCOUNT = re.compile(r"(?<![\w-])(\d{4})-(\d{4})-(\d{4})(?![\w-])")
#: parts of facts that are no sentences
_CODE = frozenset(
    ["user_data", "ecs_config", "image_ecs_config", "daemon_json", "command", "output", "node_log"]
)
#: base64, and what is none
_HIDDEN_PACK, _BROKEN_PACK = base64.b64encode(b"hidden").decode(), "hidde"


def masked(facts: T) -> T:
    accounts: Accounts = {}
    return cast(T, _walk(facts, accounts))


def mask_text(text: str, accounts: Accounts | None = None, is_prose: bool = False) -> str:
    seen: Accounts = {} if accounts is None else accounts
    return _masked(text, seen, is_prose, packed.MAX_DEPTH)


def _masked(text: str, accounts: Accounts, is_prose: bool, depth: int) -> str:
    pieces, at = [], 0
    for pack in packed.packs(text):
        pieces += [
            text[at : pack.start],
            _repacked(text[pack.start : pack.end], pack, accounts, depth),
        ]
        at = pack.end
    text = secrets.hidden("".join([*pieces, text[at:]]), is_prose)
    text = _ACCOUNT.sub(lambda m: _number(m[1], accounts), text)
    return _DASHED_ACCOUNT.sub(
        lambda m: "-".join(re.findall("....", _number(m[1] + m[2] + m[3], accounts))), text
    )


def _repacked(shape: str, pack: packed.Pack, accounts: Accounts, depth: int) -> str:
    if pack.text is None or not depth:
        return (_BROKEN_PACK if pack.is_broken else _HIDDEN_PACK) + "\n" * shape.count("\n")
    inner = _masked(pack.text, accounts, False, depth - 1)
    return shape if inner == pack.text else packed.packed(inner, pack.is_gzip, shape)


def _number(account: str, accounts: Accounts) -> str:
    return accounts.setdefault(account, f"{len(accounts) + 1:012}")


def _template(template: LaunchTemplate, accounts: Accounts) -> LaunchTemplate:
    """Its user data unpacked, so that its owner can look through it; how long it was is kept."""
    data = template.user_data.encode("utf-8", "replace")
    size, inner = parts.unpacked(data)
    if inner[:2] == b"\x1f\x8b":  # a broken gzip stays one
        text = base64.b64encode(b"\x1f\x8b" + b"hidden hidden").decode()
    elif inner == data and _is_opaque(template.user_data):
        text = secrets.DOUBTFUL
    else:
        text = _masked(inner.decode("utf-8", "replace"), accounts, False, packed.MAX_DEPTH)
        if parts.unpacked(text.encode())[1] != text.encode():  # it would be unpacked once more
            text = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return replace(template, user_data=text, user_data_bytes=template.user_data_bytes or size)


def _is_opaque(text: str) -> bool:
    """Base64 of no text: what EC2 holds is neither a text nor gzip."""
    word = "".join(text.split())
    is_base64 = (
        len(word) >= 16
        and len(word) % 4 == 0
        and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", word) is not None
    )
    return is_base64 and not any(pack.text is not None for pack in packed.packs(text))


def _walk(value: Any, accounts: Accounts, name: str = "") -> Any:
    if isinstance(value, str):
        return mask_text(value, accounts, is_prose=name not in _CODE)
    if isinstance(value, tuple):
        return tuple(_walk(item, accounts, name) for item in value)
    if isinstance(value, LaunchTemplate) and value.user_data:
        rest = _walk(replace(value, user_data=""), accounts)
        return replace(rest, **_user_data(_template(value, accounts)))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value,
            **{f.name: _walk(getattr(value, f.name), accounts, f.name) for f in fields(value)},
        )
    return value


def _user_data(template: LaunchTemplate) -> dict[str, Any]:
    return {"user_data": template.user_data, "user_data_bytes": template.user_data_bytes}

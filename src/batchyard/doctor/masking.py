"""Mask secrets and account ids in facts, so that the facts can be passed on. Pure.

Packed texts are unpacked, masked and packed again; packed data that is not text is hidden as a
whole. A mask has the form of its secret, so that masked facts give the same findings. Account ids
become 000000000001, 000000000002 ... in the order of their appearance, so that different accounts
stay different.
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
#: account id -> its mask
Accounts = dict[str, str]

#: not the last part of a UUID, a fraction, or a part of a longer number or of hexadecimal digits
_ACCOUNT = re.compile(
    r"(?<![0-9a-fA-F])(?<!\d\.)(?<![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-)"
    r"(\d{12})(?![0-9a-fA-F])"
)
#: the form that the console shows
_DASHED_ACCOUNT = re.compile(r"(?<![\w-])(\d{4})-(\d{4})-(\d{4})(?![\w-])")
#: fields of facts that are not prose
_CODE_FIELDS = frozenset(
    "user_data ecs_config image_ecs_config daemon_json command output node_log script "
    "log_lines".split()
)
#: base64, and a text that is not valid base64
_HIDDEN_PACK, _BROKEN_PACK = base64.b64encode(b"hidden").decode(), "hidde"
_GZIP = b"\x1f\x8b"


def mask_facts(facts: T) -> T:
    """Return the facts with all their texts masked."""
    accounts: Accounts = {}
    return cast(T, _mask_value(facts, accounts))


def mask_text(text: str, accounts: Accounts | None = None, is_prose: bool = False) -> str:
    """Return the text with masks for secrets and account ids; add new ids to ``accounts``."""
    table: Accounts = {} if accounts is None else accounts
    return _mask_text(text, table, is_prose, packed.MAX_DEPTH)


def _mask_text(text: str, accounts: Accounts, is_prose: bool, depth: int) -> str:
    pieces, at = [], 0
    for pack in packed.find_packs(text):
        masked_pack = _mask_pack(text[pack.start : pack.end], pack, accounts, depth)
        pieces += [text[at : pack.start], masked_pack]
        at = pack.end
    text = secrets.hide_secrets("".join([*pieces, text[at:]]), is_prose)
    text = _ACCOUNT.sub(lambda m: _mask_account(m[1], accounts), text)
    return _DASHED_ACCOUNT.sub(
        lambda m: "-".join(re.findall("....", _mask_account(m[1] + m[2] + m[3], accounts))), text
    )


def _mask_pack(original: str, pack: packed.Pack, accounts: Accounts, depth: int) -> str:
    if pack.text is None or not depth:
        mask = _BROKEN_PACK if pack.is_broken else _HIDDEN_PACK
        return mask + "\n" * original.count("\n")
    masked_text = _mask_text(pack.text, accounts, False, depth - 1)
    if masked_text == pack.text:
        return original
    return packed.pack_like(original, masked_text, pack.is_gzip)


def _mask_account(account: str, accounts: Accounts) -> str:
    return accounts.setdefault(account, f"{len(accounts) + 1:012}")


# -- user data ------------------------------------------------------------------------------------


def _mask_user_data(user_data: str, accounts: Accounts) -> tuple[int, str]:
    """Return the size in bytes that EC2 counts, and the masked text.

    The text is unpacked, so that its owner can look through it before passing it on.
    """
    data = user_data.encode("utf-8", "replace")
    size, unpacked = parts.unpack(data)
    if unpacked[:2] == _GZIP:  # a damaged gzip stays one
        return size, base64.b64encode(_GZIP + b"hidden hidden").decode()
    if unpacked == data and _is_opaque(user_data):
        text = _mask_opaque(user_data)
    else:
        text = _mask_text(unpacked.decode("utf-8", "replace"), accounts, False, packed.MAX_DEPTH)
    if parts.unpack(text.encode())[1] != text.encode():  # it would be unpacked a second time
        text = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return size, text


def _is_opaque(text: str) -> bool:
    """Return whether the text is base64 of data that is neither text nor gzip."""
    word = "".join(text.split())
    if len(word) < 16 or len(word) % 4 or not re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", word):
        return False
    return not any(pack.text is not None for pack in packed.find_packs(text))


def _mask_opaque(text: str) -> str:
    """Hide the whole text. Where it has sure secrets, their masks stay, each on its line."""
    masks = {
        text.count("\n", 0, secret.start): secret.mask_alone or f"password={secrets.SURE}"
        for secret in secrets.find_secrets(text)
        if secret.is_sure
    }
    lines = range(max(masks, default=0) + 1)
    return "\n".join(masks.get(line, secrets.DOUBTFUL) for line in lines)


# -- values ---------------------------------------------------------------------------------------


def _mask_value(value: Any, accounts: Accounts, name: str = "") -> Any:
    """Mask a value of facts; ``name`` is the field that has it."""
    if isinstance(value, str):
        return mask_text(value, accounts, is_prose=name not in _CODE_FIELDS)
    if isinstance(value, tuple):
        return tuple(_mask_value(element, accounts, name) for element in value)
    if isinstance(value, LaunchTemplate) and value.user_data:
        return _mask_template(value, accounts)
    if is_dataclass(value) and not isinstance(value, type):
        masked_fields = {
            f.name: _mask_value(getattr(value, f.name), accounts, f.name) for f in fields(value)
        }
        return replace(value, **masked_fields)
    return value


def _mask_template(template: LaunchTemplate, accounts: Accounts) -> LaunchTemplate:
    without_user_data = _mask_value(replace(template, user_data=""), accounts)
    size, text = _mask_user_data(template.user_data, accounts)
    size = template.user_data_bytes or size
    masked_template: LaunchTemplate = replace(
        without_user_data, user_data=text, user_data_bytes=size
    )
    return masked_template

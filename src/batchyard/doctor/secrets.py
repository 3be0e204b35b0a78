"""Find secrets in a text, and masks to replace them. Pure; the only module that defines a secret.

Finding BY113 reports the secrets that are sure; saved facts hide all of them. A mask has the form
of its secret, so that the text is parsed the same: a word for a word, digits for digits, a key for
a key. It is judged the same, too: the mask of a sure secret is long enough to count as sure, any
other mask is not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SURE, DOUBTFUL = "hidden-value-0", "hidden"

#: characters of a sure secret; a shorter value is rather a word, an example or a switch
_MIN_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Secret:
    start: int
    end: int
    #: the kind of secret, such as "a token"; never the secret itself
    description: str
    #: the text that replaces the secret
    mask: str
    is_sure: bool
    #: a mask that is a sure secret by its form alone; empty if the text around makes it a secret
    mask_alone: str = ""


def find_secrets(text: str, is_prose: bool = False) -> list[Secret]:
    """Return the secrets of a text, in order; they do not overlap.

    ``is_prose``: the text is a message, for example of AWS, in which "token: expired" has no token.
    """
    candidates = [secret for rule in _RULES_OF_PROSE for secret in rule(text)]
    if is_prose:
        candidates = [s for s in candidates if not _WORD.fullmatch(text, s.start, s.end)]
    else:
        candidates += _find_by_line(text)
        candidates += _find_behind_open_quotes(text, candidates)
    secrets: list[Secret] = []
    for secret in sorted(candidates, key=lambda s: (s.start, -s.end, not s.is_sure)):
        outer = secrets[-1] if secrets else None
        if outer is None or secret.start >= outer.end:
            secrets.append(secret)
        elif _makes_sure(secret, outer):
            secrets[-1] = _as_sure(text, outer, secret)
    return secrets


def _makes_sure(inner: Secret, outer: Secret) -> bool:
    """Return whether a sure secret lies in one that is not sure."""
    is_inside = inner.end <= outer.end
    return is_inside and inner.is_sure and bool(inner.mask_alone) and not outer.is_sure


def _as_sure(text: str, outer: Secret, inner: Secret) -> Secret:
    """Return the outer secret with a mask that is sure."""
    mask = f'["{inner.mask_alone}"]' if text[outer.start] == "[" else inner.mask_alone
    return Secret(outer.start, outer.end, inner.description, mask, True)


def hide_secrets(text: str, is_prose: bool = False) -> str:
    """Return the text with masks instead of its secrets."""
    parts, at = [], 0
    for secret in find_secrets(text, is_prose):
        parts += [text[at : secret.start], secret.mask]
        at = secret.end
    return "".join([*parts, text[at:]])


_WORD = re.compile(r"[A-Za-z.]*[a-z][.:]?")

# -- secrets that are recognized by their own form ------------------------------------------------

#: lines of base64 and the two headers; a command in between ends the key
_KEY_BODY = (
    r"(?:[A-Za-z0-9+/=]++|\\++[nr]|[ \t]*+\r?\n[ \t]*+(?:(?:Proc-Type|DEK-Info):[^\n]*+)?+"
    r"| (?=[A-Za-z0-9+/=]{30}))*+"
)
_KEY = re.compile(
    rf"(-----BEGIN [A-Z ]{{0,40}}PRIVATE KEY-----)"
    rf"(?:({_KEY_BODY})(?=-----END [A-Z ]{{0,40}}PRIVATE KEY-----)"
    r"|((?:\s*+[A-Za-z0-9+/=]{40,}+)++))"
)
_FORMS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)([0-9A-Z]{16})\b"),
        "an AWS access key",
        "HIDDENHIDDENHIDD",
    ),
    (re.compile(r"(?i)\bbearer +(?!\$)([\w.~+/=-]{12,})"), "a bearer token", SURE),
    (
        re.compile(r"(?i)\bauthorization\b[\"']?[ \t]*[:=][ \t]*[\"']?basic +([\w+/=-]{8,})"),
        "a password",
        SURE,
    ),
    (
        re.compile(r"\b(?:gh[pousr]_|github_pat_|npm_|hf_|sk_live_)(\w{20,})"),
        "a token",
        "hidden" * 4,
    ),
    (re.compile(r"\b(?:glpat-|dckr_pat_|xox[abprs]-)([\w-]{10,})"), "a token", "hidden" * 4),
    (
        re.compile(r"(?<=\beyJ)([\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{6,})"),
        "a token",
        "hidden-value.eyJhidden-value.hidden",
    ),
    (
        re.compile(r"(?<=hooks\.slack\.com/services/)([\w/]{20,})"),
        "a token",
        "hidden/hidden/hidden/hidden",
    ),
)
#: hashes of passwords, as in /etc/shadow
_HASH = re.compile(r"\$(?:1|2[abxy]?|5|6|7|y|gy|argon2\w*|pbkdf2[\w-]*)\$([\w./$=,+*-]{8,})")
_URL = re.compile(r"(?<=://)([^/\s:@'\"]+):([^/\s@'\"]+)(?=@)")
_PROXY = re.compile(
    r"(?i)\b\w{0,40}proxy\w{0,40}\\*[\"']?[ \t]*[=:][ \t]*\\*[\"']?"
    r"([^/\s:@'\"$]+):([^/\s@'\"$][^/\s@'\"]*)(?=@)"
)
_URL_TOKEN = re.compile(r"https?://(?![a-z]{1,15}@)([^/\s:@'\"${}<>()]+)(?=@[\w.-])")


def _find_by_form(text: str) -> Iterator[Secret]:
    for pattern, description, mask in _FORMS:
        for match in pattern.finditer(text):
            prefix = text[match.start() : match.start(1)]
            yield Secret(*match.span(1), description, mask, True, prefix + mask)
    for match in _HASH.finditer(text):
        yield Secret(*match.span(1), "a password's hash", "hidden$hidden", False)
    for match in _KEY.finditer(text):
        group = 2 if match[2] is not None else 3
        mask = _mask_key(match[group].count("\n"), is_complete=group == 2)
        yield Secret(*match.span(group), "a private key", mask, True)


def _mask_key(line_count: int, is_complete: bool) -> str:
    """Return a mask with as many lines as the key, so that the text below keeps its lines."""
    if not is_complete:  # the mask is long enough to be recognized without the end of the key
        return "\n" * line_count + "hidden" * 7
    if not line_count:
        return "hidden"
    return "\n" + "\n".join(["hidden"] * max(1, line_count - 1)) + "\n"


def _find_in_urls(text: str) -> Iterator[Secret]:
    for pattern in (_URL, _PROXY):
        for match in pattern.finditer(text):
            user, password = match[1], match[2]
            if _is_filled_in(password):
                continue
            is_sure = not _FILLED_IN.match(text, match.start(1))
            user_mask = user if re.search(r"\$|\{\{|#\{|%\(", user) else DOUBTFUL
            yield Secret(*match.span(1), "", user_mask, False)
            mask = SURE if is_sure else DOUBTFUL
            yield Secret(
                *match.span(2), "a password in a URL", mask, is_sure, f"x://{DOUBTFUL}:{mask}@x"
            )
    for match in _URL_TOKEN.finditer(text):
        is_sure = _is_mixed(match[1]) and len(match[1]) >= len(SURE)
        yield _secret_of(match, 1, "a token in a URL", is_sure)


# -- secrets that are recognized by the name of their value ---------------------------------------

_WORDS = (
    r"passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|credential|private[_-]?key"
)
#: words with other meanings, too: they count only as whole parts of a name
_PARTS = (
    r"(?<!by)(?<!com)(?<!tres)(?<!proxy[_-])pass(?![a-z])|(?<![a-z])pwd(?![a-z])"
    r"|(?<![a-z])auth(?:_data)?(?![\w.-])|(?-i:(?<=[A-Z0-9])_KEY(?![\w.-]))"
)
_NAME = rf"(?<![\w.-])[\w.-]{{0,200}}?(?:{_WORDS})[\w.-]*"
_OTHER_NAME = rf"(?<![\w.-])[\w.-]{{0,200}}?(?:{_PARTS})[\w.-]*"
_QUOTED = r"\\+\"(?:(?!\\+\")[^\n])*\\+\"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"
#: a word as a shell reads it, up to the end that YAML and JSON would see
_BARE = r"(?![\[{#])(?:[^\s\\\"'`;&|<>(){}\],$]|\$(?![({])|\\[^\s\"]|,(?![\s\"']|$|[\w.-]*[:=]))+"
#: a value whose quote is not closed on its line: the text was cut there, or the quote was forgotten
_OPEN_VALUE = (
    r"(?P<open>(?:\\+\"(?!(?:(?!\\+\")[^\n])*\\+\")|\"(?!(?:[^\"\\\n]|\\.)*\")"
    r"|'(?![^'\n]*'))[^\n]*+)"
)
_VALUE = rf"({_QUOTED}|\[[^\[\]{{}}\n]*\]|{_BARE})"
_IS = r"\\*[\"']?[ \t]*(?:={1,2}|:[-=+?]?)[ \t]*"
_NAMED = re.compile(rf"(?im)({_NAME}){_IS}{_VALUE}")
#: these names count only before = or as a quoted key
_OTHER_NAMED = re.compile(rf"(?im)({_OTHER_NAME})(?:=|\\*[\"'][ \t]*[:=][ \t]*){_VALUE}")
#: a key of YAML at the beginning of a line: the value is the remainder of the line
_KEY_LINE = r"^([ \t]*)(?:-[ \t]+)*[\"']?"
_TAG = r"(?:[&!]\S*[ \t]+)*"
_LINE = re.compile(
    rf"(?im){_KEY_LINE}({_NAME}|{_OTHER_NAME})[\"']?[ \t]*:[ \t]+{_TAG}"
    r"([^\s\"'\[{|>#&*!][^\n]*?)(?=[,}\]]*[ \t]*(?:[ \t]#[^\n]*)?\r?$)"
)
_ENVIRONMENT = re.compile(
    rf"(?im)^[ \t]*(?:export[ \t]+)?({_NAME}|{_OTHER_NAME})="
    r"((?![^\n]*(?:&&|\|\|))[^\s\"'`;$\\]+)(?=[ \t]*\r?$)"
)
#: "password: |", and "password:" with the value below
_BLOCK = re.compile(
    rf"(?im){_KEY_LINE}({_NAME}|{_OTHER_NAME})[\"']?[ \t]*:[ \t]*{_TAG}"
    r"(?:([|>])[-+0-9]*[ \t]*)?(?:#[^\n]*)?\r?\n"
    r"((?:(?:\1[ \t]+[^\n]*|[ \t]*\r?)(?:\n|\Z))+)"
)
_BELOW = re.compile(r"[ \t]*[\"']?([^\s:#\"'\[{-][^\n:\"']*?)[\"']?[ \t]*\r?\n?\Z")
#: "--password x"; without the dashes "token for" is not the name of a value
_OPTION_NAME = (
    rf"(?im)((?<![\w.-])--?[\w-]{{0,60}}?(?:{_WORDS})[\w-]*)(?:[ \t]+|[\"']?,[ \t]*)(?!-)"
)
_OPTION = re.compile(_OPTION_NAME + _VALUE)

_SWITCHES = (
    r"true|false|null|none|yes|no|on|off|required|optional|enabled?|disabled?|default"
    r"|always|never|random"
)
#: values that are no secrets in spite of their name: a variable, a command's output, a path
_HARMLESS = re.compile(
    rf"\$.*|`.*|/.*|\.{{1,2}}/.*|<.*|arn:.*|![\w:]*|\d{{1,6}}(?::\d{{1,6}})?|\W*|{_SWITCHES}",
    re.IGNORECASE | re.DOTALL,
)
_SECRET_KEY = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9/+]{40}")
#: a line of /etc/nsswitch.conf, which names databases of accounts
_NSSWITCH = re.compile(
    r"passwd:(?:[ \t]+(?:files|compat|db|nis|sss|ldap|winbind|systemd|altfiles)\b|\\s|\[|\.\*)"
)
#: names of values that refer to a secret
_REFERENCE_NAME = re.compile(
    r".*(?:file|name|path|arn|id|url|ttl|policy|length|stdin|ref|existing-?secret|pull-?secret)s?",
    re.IGNORECASE,
)
_PUBLIC = re.compile(
    r".*(?:gpg|pgp|apt|rpm|pub|public|s3|cache|sort|partition|host|object)_key", re.IGNORECASE
)
#: values that a template fills in later: ${name}, {{ name }}, #{name}, @Name@, %(name)s
_FILLED_IN = re.compile(r"[^\s=:@]*[=:]?[ \t]*[\"']?(?:[^\s\"'@]*:)?(?:\$|\{\{|#\{|@\w+@|%\()")
_IS_FILLED_IN = re.compile(r"\$(?!\d)|\{\{|#\{|@\w+@|%\(")
_PROSE = re.compile(
    r"[ \t]*#[^=:]*[=:][ \t]*[a-z_]+(?::[a-z_]+)*(?:[ \t(]|$)"
    r"|[ \t]*(?:echo|printf)\b[^=:]*:[ \t]+[A-Za-z]+[ \t\"']"
)


def _is_filled_in(value: str) -> bool:
    return bool(_IS_FILLED_IN.match(value))


def _is_mixed(value: str) -> bool:
    """Return whether a value has letters and digits: it is neither a word nor a number."""
    return bool(re.search(r"\d", value) and re.search(r"[A-Za-z]", value))


def _find_by_name(text: str) -> Iterator[Secret]:
    for pattern in (_NAMED, _OTHER_NAMED, _ENVIRONMENT):
        for match in pattern.finditer(text):
            yield from _find_named(text, match, 1, 2)


def _find_by_option(text: str) -> Iterator[Secret]:
    for match in _OPTION.finditer(text):
        if not _REFERENCE_NAME.fullmatch(match[1]):
            yield from _find_named(text, match, 1, 2, is_doubtful=not _is_mixed(match[2]))


def _find_by_line(text: str) -> Iterator[Secret]:
    for match in _LINE.finditer(text):
        yield from _find_named(text, match, 2, 3)
    for match in _BLOCK.finditer(text):
        if match[3]:
            yield from _find_lines_below(text, match)
            continue
        below = _BELOW.fullmatch(text, *match.span(4))
        if below:
            is_sure = _is_sure(text, match, 2, below[1])
            yield _secret_of(below, 1, f"a value for {match[2]}", is_sure)


def _find_lines_below(text: str, match: re.Match[str]) -> Iterator[Secret]:
    for line in re.finditer(r"(?m)^[ \t]*(\S[^\n]*?)[ \t]*\r?$", match[4]):
        start, end = match.start(4) + line.start(1), match.start(4) + line.end(1)
        if line[1].startswith("-----") or _HARMLESS.fullmatch(line[1]):
            continue
        is_sure = _is_sure(text, match, 2, line[1])
        yield Secret(start, end, f"a value for {match[2]}", _mask(line[1], is_sure), is_sure)


def _find_named(
    text: str, match: re.Match[str], name: int, value: int, is_doubtful: bool = False
) -> Iterator[Secret]:
    """Yield the secret of a match; ``name`` and ``value`` are the numbers of its groups."""
    start, end = _span_in_quotes(match, value)
    inner = text[start:end]
    is_harmless = _HARMLESS.fullmatch(inner) and not _SECRET_KEY.fullmatch(inner)
    is_reference = _is_in_arn(text, match.start(name)) or _is_nsswitch(text, match.start())
    if is_harmless or is_reference or _is_filled_in(inner):
        return
    is_call = text[end : end + 1] == "("
    is_sure = not is_doubtful and not is_call and _is_sure(text, match, name, inner)
    description = f"a value for {match[name].strip('-')}"
    yield Secret(start, end, description, _mask(inner, is_sure), is_sure)


def _is_sure(text: str, match: re.Match[str], name: int, value: str) -> bool:
    """Return False for a file's name, a value that is filled in later, or a sentence."""
    label, at = match[name], match.start(name)
    is_short = len(value.strip("\"'[] \\")) < _MIN_LENGTH
    if is_short or "x-aws-ec2-metadata-token" in label.lower():
        return False
    if _REFERENCE_NAME.fullmatch(label) or _is_public_key(label, value):
        return False
    return not _FILLED_IN.match(text, at) and not _PROSE.match(_line_at(text, at))


def _is_public_key(label: str, value: str) -> bool:
    """Return whether a name such as GPG_KEY or AUTH has a value that need not be a secret."""
    is_ambiguous = label.lower().endswith(("auth", "_key"))
    if not is_ambiguous or re.search(_WORDS, label, re.IGNORECASE):
        return False
    return not _is_mixed(value) or _PUBLIC.fullmatch(label) is not None or "/" in value


def _is_in_arn(text: str, at: int) -> bool:
    return "arn:" in re.split(r"[\s\"'=]", text[max(0, at - 100) : at])[-1]


def _is_nsswitch(text: str, at: int) -> bool:
    return bool(_NSSWITCH.search(_line_at(text, at)))


def _line_at(text: str, at: int) -> str:
    """Return the line of this index, at most 2,000 characters."""
    start = text.rfind("\n", 0, at) + 1
    return text[start : start + 2000].split("\n", 1)[0]


def _span_in_quotes(match: re.Match[str], group: int) -> tuple[int, int]:
    value = match[group]
    quote = re.match(r"\\*[\"']", value)
    size = len(quote[0]) if quote else 0
    return match.start(group) + size, max(match.start(group) + size, match.end(group) - size)


def _mask(value: str, is_sure: bool) -> str:
    if value.isdecimal():
        return "10000000" if is_sure else "1"
    mask = SURE if is_sure else DOUBTFUL
    return f'["{mask}"]' if value.startswith("[") else mask


def _secret_of(match: re.Match[str], group: int, description: str, is_sure: bool) -> Secret:
    start, end = _span_in_quotes(match, group)
    return Secret(start, end, description, _mask(match.string[start:end], is_sure), is_sure)


# -- secrets that are recognized by the command they are passed to --------------------------------

#: the text between a command and its option, up to the end of the command
_ARGUMENTS = r"(?:\\\r?\n|[^\n;|&]){0,400}?"


def _commands_with(value: str) -> tuple[re.Pattern[str], ...]:
    patterns = (
        rf"\b(?:docker|podman|nerdctl|buildah|skopeo|oras|crane|helm)\b{_ARGUMENTS}"
        rf"\blogin\b{_ARGUMENTS}\s-p[ =]?{value}",
        rf"\bsshpass[ \t]+-p[ \t]?{value}",
        rf"\b(?:mysql\w*|mariadb[\w-]*)\b{_ARGUMENTS}\s-p(?![ \t])(?!ort){value}",
        rf"\bredis-cli\b{_ARGUMENTS}\s-a[ \t]+{value}",
        rf"\bldap(?:search|modify|add|delete|whoami)\b{_ARGUMENTS}\s-w[ \t]+{value}",
        rf"\bpass:(?![\s]){value}",
        rf"(?i)\bidentified[ \t]+(?:with[ \t]+\S+[ \t]+)?by[ \t]+(?=\\*[\"']){value}",
        rf"\blogin[ \t]+\S+\s+password[ \t]+{value}",
        rf"\b(?:echo|printf)[ \t]+(?:-n[ \t]+)?{value}[ \t]*\|[^\n]*(?:-stdin\b|sudo[ \t]+-S)",
    )
    return tuple(re.compile(pattern) for pattern in patterns)


_COMMANDS = _commands_with(_VALUE)
#: the secret follows the name of a user
_WITH_USER = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\bcurl\b{_ARGUMENTS}\s(?:-[a-zA-Z]*u|--user|--proxy-user|-U)[ =]?"
        r"[\"']?[^\s:\"'$]+:([^\s\"']+)",
        rf"\b(?:smbclient|rpcclient|net)\b{_ARGUMENTS}\s-U[ ]?[\"']?[^\s%\"']+%([^\s\"']+)",
        r"\b(?:echo|printf)\b[^\n|:]*?[\"' ][\w.-]+:([^\s\"'|\\:]+)[^\n|]*\|[^\n]*\bchpasswd\b",
        r"\bchpasswd\b[^\n]*<<<[ \t]*[\"']?[\w.-]+:([^\s\"']+)",
    )
)
_CHPASSWD = re.compile(
    r"(?m)^([ \t]*)chpasswd[ \t]*:([^\n]*(?:\n(?:\1[ \t]+[^\n]*|[ \t]*\r?(?=\n)))*)"
    r"|\bchpasswd\b[^\n<]*<<-?[ \t]*[\"']?(\w+)[\"']?[^\n]*\n(.*?)\n[ \t]*\3\b",
    re.DOTALL,
)
_ACCOUNT = re.compile(r"(?<![\w.-])[\w.-]+:([^\s:\"',\]}\\]+)")


def _find_by_command(text: str) -> Iterator[Secret]:
    for pattern in _COMMANDS + _WITH_USER:
        for match in pattern.finditer(text):
            yield from _find_argument(text, *_span_in_quotes(match, 1))
    for match in _CHPASSWD.finditer(text):
        group = 2 if match[2] is not None else 4
        for account in _ACCOUNT.finditer(text, *match.span(group)):
            if account[1] not in ("R", "RANDOM"):
                yield from _find_argument(text, *account.span(1))


def _find_argument(text: str, start: int, end: int) -> Iterator[Secret]:
    value = text[start:end]
    if not _HARMLESS.fullmatch(value) and not _is_filled_in(value):
        is_sure = len(value) >= _MIN_LENGTH and _is_mixed(value)
        yield Secret(start, end, "a password given to a command", _mask(value, is_sure), is_sure)


# -- values behind a quote that is not closed -----------------------------------------------------

_QUOTE = re.compile(r"(?<!\\)\\*+[\"']")
_OPEN_QUOTES = (
    re.compile(rf"(?im)(?:{_NAME}){_IS}{_OPEN_VALUE}"),
    re.compile(rf"(?im)(?:{_OTHER_NAME})(?:=|\\*[\"'][ \t]*[:=][ \t]*){_OPEN_VALUE}"),
    re.compile(_OPTION_NAME + _OPEN_VALUE),
    *_commands_with(_OPEN_VALUE),
)


def _find_behind_open_quotes(text: str, secrets: list[Secret]) -> Iterator[Secret]:
    """Find values whose quote is not closed on their line; none of them is sure.

    The value goes to the end of the line, or only to the next blank where a sure secret follows
    on the line: that secret must stay recognizable by its own name.
    """
    sure_starts = [secret.start for secret in secrets if secret.is_sure]
    for line in re.finditer(r"[^\n]+", text):
        quote_counts = Counter(_QUOTE.findall(line[0]))
        if all(count % 2 == 0 for count in quote_counts.values()):
            continue
        for pattern in _OPEN_QUOTES:
            for match in pattern.finditer(text, *line.span()):
                yield from _open_value(text, *match.span("open"), sure_starts)


def _open_value(text: str, start: int, end: int, sure_starts: list[int]) -> Iterator[Secret]:
    quote = _QUOTE.match(text, start)
    line_start = text.rfind("\n", 0, start) + 1
    quotes_before = _QUOTE.findall(text, line_start, start)
    if quote is None or quotes_before.count(quote[0]) % 2:  # it closes a quote
        return
    start = quote.end()
    if any(start <= sure_start < end for sure_start in sure_starts):
        end = start + len(re.split(r"\s", text[start:end], maxsplit=1)[0])
    value = text[start:end]
    if not _HARMLESS.fullmatch(value) and not _is_filled_in(value):
        yield Secret(start, end, "", DOUBTFUL, False)


_RULES_OF_PROSE: tuple[Callable[[str], Iterator[Secret]], ...] = (
    _find_by_form,
    _find_in_urls,
    _find_by_name,
    _find_by_option,
    _find_by_command,
)

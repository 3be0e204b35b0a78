"""Where secrets stand in a text, and what can stand there instead. Pure; the one place that knows what a secret is.

BY113 reports those that are sure; saved facts hide all. What takes a secret's place has the form of the secret, so that
the text is read the same: a word for a word, digits for digits, a key for a key. It is judged the same, too: what takes
the place of a sure one is long enough to be sure again, what takes the place of another is not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SURE, DOUBTFUL = "hidden-value-0", "hidden"

#: a value that is shorter is rather a word, an example or a switch
_SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Secret:
    start: int
    end: int
    #: what it looks like; never the secret itself
    what: str
    #: what can stand in its place
    mask: str
    is_sure: bool
    #: what a text could be that has nothing else in it; empty where its surroundings make it a secret
    alone: str = ""


def find(text: str, is_prose: bool = False) -> list[Secret]:
    """In order, none over another. ``is_prose``: a message of AWS, say, in which "token: expired" names no token."""
    found: list[Secret] = []
    for rule in _RULES if not is_prose else _RULES_OF_PROSE:
        found += rule(text)
    if is_prose:
        found = [s for s in found if not _WORD.fullmatch(text, s.start, s.end)]
    else:
        found += _behind_open_quotes(text, found)
    chosen: list[Secret] = []
    for secret in sorted(found, key=lambda s: (s.start, -s.end, not s.is_sure)):
        if not chosen or secret.start >= chosen[-1].end:
            chosen.append(secret)
        elif (
            secret.is_sure
            and secret.alone
            and not chosen[-1].is_sure
            and secret.end <= chosen[-1].end
        ):
            chosen[-1] = _as_sure(text, chosen[-1], secret)
    return chosen


def _as_sure(text: str, outer: Secret, inner: Secret) -> Secret:
    """A doubtful one in which a sure one stands: as little is left of it, and as sure."""
    mask = f'["{inner.alone}"]' if text[outer.start] == "[" else inner.alone
    return Secret(outer.start, outer.end, inner.what, mask, True)


def hidden(text: str, is_prose: bool = False) -> str:
    parts, at = [], 0
    for secret in find(text, is_prose):
        parts += [text[at : secret.start], secret.mask]
        at = secret.end
    return "".join([*parts, text[at:]])


_WORD = re.compile(r"[A-Za-z.]*[a-z][.:]?")

# -- what is a secret by its own form ---------------------------------------------------------------------------------

#: lines of base64 and the two headers; a command in between is none of it
_KEY_BODY = r"(?:[A-Za-z0-9+/=]++|\\++[nr]|[ \t]*+\r?\n[ \t]*+(?:(?:Proc-Type|DEK-Info):[^\n]*+)?+| (?=[A-Za-z0-9+/=]{30}))*+"
_KEY = re.compile(
    rf"(-----BEGIN [A-Z ]{{0,40}}PRIVATE KEY-----)(?:({_KEY_BODY})(?=-----END [A-Z ]{{0,40}}PRIVATE KEY-----)"
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
#: /etc/shadow's: hard to turn into the password, and nobody's business
_HASH = re.compile(r"\$(?:1|2[abxy]?|5|6|7|y|gy|argon2\w*|pbkdf2[\w-]*)\$([\w./$=,+*-]{8,})")
_URL = re.compile(r"(?<=://)([^/\s:@'\"]+):([^/\s@'\"]+)(?=@)")
_PROXY = re.compile(
    r"(?i)\b\w{0,40}proxy\w{0,40}\\*[\"']?[ \t]*[=:][ \t]*\\*[\"']?([^/\s:@'\"$]+):([^/\s@'\"$][^/\s@'\"]*)(?=@)"
)
_URL_TOKEN = re.compile(r"https?://(?![a-z]{1,15}@)([^/\s:@'\"${}<>()]+)(?=@[\w.-])")


def _by_form(text: str) -> Iterator[Secret]:
    for pattern, what, mask in _FORMS:
        for match in pattern.finditer(text):
            before = text[match.start() : match.start(1)]
            yield Secret(*match.span(1), what, mask, True, before + mask)
    for match in _HASH.finditer(text):
        yield Secret(*match.span(1), "a password's hash", "hidden$hidden", False)
    for match in _KEY.finditer(text):
        body = match[2] if match[2] is not None else match[3]
        group = 2 if match[2] is not None else 3
        lines = body.count("\n")
        # As many lines as there were: what stands below keeps its line. As long as is needed to be taken for a key.
        mask = (
            "\n" + "\n".join(["hidden"] * (lines - 1)) + "\n"
            if lines > 1
            else "\nhidden\n" * bool(lines) or "hidden"
        )
        yield Secret(
            *match.span(group),
            "a private key",
            mask if group == 2 else "\n" * lines + "hidden" * 7,
            True,
        )


def _in_urls(text: str) -> Iterator[Secret]:
    for pattern in (_URL, _PROXY):
        for match in pattern.finditer(text):
            user, password = match[1], match[2]
            if _is_filled_in(password):
                continue
            is_sure = not _FILLED_IN.match(text, match.start(1))
            shown = user if re.search(r"\$|\{\{|#\{|%\(", user) else DOUBTFUL
            yield Secret(*match.span(1), "", shown, False)
            mask = SURE if is_sure else DOUBTFUL
            yield Secret(
                *match.span(2), "a password in a URL", mask, is_sure, f"x://{DOUBTFUL}:{mask}@x"
            )
    for match in _URL_TOKEN.finditer(text):
        yield _valued(
            match, 1, "a token in a URL", _is_mixed(match[1]) and len(match[1]) >= len(SURE)
        )


# -- what is a secret by its name -------------------------------------------------------------------------------------

_WORDS = (
    r"passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|credential|private[_-]?key"
)
#: these are words of other meanings, too: only whole parts of a name
_PARTS = (
    r"(?<!by)(?<!com)(?<!tres)(?<!proxy[_-])pass(?![a-z])|(?<![a-z])pwd(?![a-z])"
    r"|(?<![a-z])auth(?:_data)?(?![\w.-])|(?-i:(?<=[A-Z0-9])_KEY(?![\w.-]))"
)
_NAME = rf"(?<![\w.-])[\w.-]{{0,200}}?(?:{_WORDS})[\w.-]*"
_OTHER_NAME = rf"(?<![\w.-])[\w.-]{{0,200}}?(?:{_PARTS})[\w.-]*"
_QUOTED = r"\\+\"(?:(?!\\+\")[^\n])*\\+\"|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"
#: a word as a shell takes it, and no further than YAML and JSON would
_BARE = r"(?![\[{#])(?:[^\s\\\"'`;&|<>(){}\],$]|\$(?![({])|\\[^\s\"]|,(?![\s\"']|$|[\w.-]*[:=]))+"
#: a value whose quote is not closed on its line: the text was cut there, or the quote was forgotten
_OPEN_VALUE = r"(?P<open>(?:\\+\"(?!(?:(?!\\+\")[^\n])*\\+\")|\"(?!(?:[^\"\\\n]|\\.)*\")|'(?![^'\n]*'))[^\n]*+)"
_VALUE = rf"({_QUOTED}|\[[^\[\]{{}}\n]*\]|{_BARE})"
_IS = r"\\*[\"']?[ \t]*(?:={1,2}|:[-=+?]?)[ \t]*"
_NAMED = re.compile(rf"(?im)({_NAME}){_IS}{_VALUE}")
#: a lone word is taken at its word only where it is assigned to, or is a key
_OTHER_NAMED = re.compile(rf"(?im)({_OTHER_NAME})(?:=|\\*[\"'][ \t]*[:=][ \t]*){_VALUE}")
#: a line of its own: the value goes to its end
_KEY_LINE = r"^([ \t]*)(?:-[ \t]+)*[\"']?"
_TAG = r"(?:[&!]\S*[ \t]+)*"
_LINE = re.compile(
    rf"(?im){_KEY_LINE}({_NAME}|{_OTHER_NAME})[\"']?[ \t]*:[ \t]+{_TAG}"
    r"([^\s\"'\[{|>#&*!][^\n]*?)(?=[,}\]]*[ \t]*(?:[ \t]#[^\n]*)?\r?$)"
)
_ENVIRONMENT = re.compile(
    rf"(?im)^[ \t]*(?:export[ \t]+)?({_NAME}|{_OTHER_NAME})=((?![^\n]*(?:&&|\|\|))[^\s\"'`;$\\]+)(?=[ \t]*\r?$)"
)
#: "password: |", and "password:" with the value below
_BLOCK = re.compile(
    rf"(?im){_KEY_LINE}({_NAME}|{_OTHER_NAME})[\"']?[ \t]*:[ \t]*{_TAG}(?:([|>])[-+0-9]*[ \t]*)?(?:#[^\n]*)?\r?\n"
    r"((?:(?:\1[ \t]+[^\n]*|[ \t]*\r?)(?:\n|\Z))+)"
)
_BELOW = re.compile(r"[ \t]*[\"']?([^\s:#\"'\[{-][^\n:\"']*?)[\"']?[ \t]*\r?\n?\Z")
#: "--password x": in free text "token for" names nothing
_OPTION_NAME = (
    rf"(?im)((?<![\w.-])--?[\w-]{{0,60}}?(?:{_WORDS})[\w-]*)(?:[ \t]+|[\"']?,[ \t]*)(?!-)"
)
_OPTION = re.compile(_OPTION_NAME + _VALUE)

_SWITCHES = r"true|false|null|none|yes|no|on|off|required|optional|enabled?|disabled?|default|always|never|random"
#: values that are no secrets though their name says so: a variable, a command's output, a path, a switch
_HARMLESS = re.compile(
    rf"\$.*|`.*|/.*|\.{{1,2}}/.*|<.*|arn:.*|![\w:]*|\d{{1,6}}(?::\d{{1,6}})?|\W*|{_SWITCHES}",
    re.IGNORECASE | re.DOTALL,
)
_SECRET_KEY = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9/+]{40}")
#: /etc/nsswitch.conf names where accounts are looked up
_NSSWITCH = re.compile(
    r"passwd:(?:[ \t]+(?:files|compat|db|nis|sss|ldap|winbind|systemd|altfiles)\b|\\s|\[|\.\*)"
)
#: names of what only leads to a secret
_LEADS_TO_ONE = re.compile(r".*(?:file|name|path|arn|id|url|ttl|policy|length)s?", re.IGNORECASE)
_PUBLIC = re.compile(
    r".*(?:gpg|pgp|apt|rpm|pub|public|s3|cache|sort|partition|host|object)_key", re.IGNORECASE
)
#: what is filled in later: ${name}, {{ name }}, #{name}, @Name@, %(name)s
_FILLED_IN = re.compile(r"[^\s=:@]*[=:]?[ \t]*[\"']?(?:[^\s\"'@]*:)?(?:\$|\{\{|#\{|@\w+@|%\()")
_IS_FILLED_IN = re.compile(r"\$(?!\d)|\{\{|#\{|@\w+@|%\(")
_PROSE = re.compile(
    r"[ \t]*#[^=:]*[=:][ \t]*[a-z_]+(?::[a-z_]+)*(?:[ \t(]|$)|[ \t]*(?:echo|printf)\b[^=:]*:[ \t]+[A-Za-z]+[ \t\"']"
)


def _is_filled_in(value: str) -> bool:
    return bool(_IS_FILLED_IN.match(value))


def _is_mixed(value: str) -> bool:
    """Letters and digits: neither a word nor a number."""
    return bool(re.search(r"\d", value) and re.search(r"[A-Za-z]", value))


def _by_name(text: str) -> Iterator[Secret]:
    for pattern in (_NAMED, _OTHER_NAMED, _ENVIRONMENT):
        for match in pattern.finditer(text):
            yield from _named(text, match, 1, 2)


def _by_option(text: str) -> Iterator[Secret]:
    for match in _OPTION.finditer(text):
        if not _LEADS_TO_ONE.fullmatch(match[1]):
            yield from _named(text, match, 1, 2, is_doubtful=not _is_mixed(match[2]))


def _by_line(text: str) -> Iterator[Secret]:
    for match in _LINE.finditer(text):
        yield from _named(text, match, 2, 3)
    for match in _BLOCK.finditer(text):
        if match[3]:
            yield from _lines_below(text, match)
            continue
        below = _BELOW.fullmatch(text, *match.span(4))
        if below:
            yield _valued(below, 1, f"a value for {match[2]}", _is_secret(text, match, 2, below[1]))


def _lines_below(text: str, match: re.Match[str]) -> Iterator[Secret]:
    for line in re.finditer(r"(?m)^[ \t]*(\S[^\n]*?)[ \t]*\r?$", match[4]):
        start, end = match.start(4) + line.start(1), match.start(4) + line.end(1)
        if line[1].startswith("-----") or _HARMLESS.fullmatch(line[1]):
            continue
        is_sure = _is_secret(text, match, 2, line[1])
        yield Secret(start, end, f"a value for {match[2]}", _mark(line[1], is_sure), is_sure)


def _named(
    text: str, match: re.Match[str], name: int, value: int, is_doubtful: bool = False
) -> Iterator[Secret]:
    start, end = _within_quotes(match, value)
    inner = text[start:end]
    is_harmless = _HARMLESS.fullmatch(inner) and not _SECRET_KEY.fullmatch(inner)
    if (
        is_harmless
        or _is_filled_in(inner)
        or _is_of_arn(text, match.start(name))
        or _is_nsswitch(text, match.start())
    ):
        return
    is_call = text[end : end + 1] == "("
    is_sure = not is_doubtful and not is_call and _is_secret(text, match, name, inner)
    yield Secret(
        start, end, f"a value for {match[name].strip('-')}", _mark(inner, is_sure), is_sure
    )


def _is_secret(text: str, match: re.Match[str], name: int, value: str) -> bool:
    """And not what only sounds like one: a file's name, a value that is filled in later, a sentence."""
    label, at = match[name], match.start(name)
    if label.lower().endswith(("auth", "_key")) and not re.search(_WORDS, label, re.IGNORECASE):
        if not _is_mixed(value) or _PUBLIC.fullmatch(label) or "/" in value:
            return False
    start = text.rfind("\n", 0, at) + 1
    return not (
        len(value.strip("\"'[] \\")) < _SHORTEST
        or "x-aws-ec2-metadata-token" in label.lower()
        or _LEADS_TO_ONE.fullmatch(label)
        or _FILLED_IN.match(text, at)
        or _PROSE.match(text[start : start + 2000].split("\n", 1)[0])
    )


def _is_of_arn(text: str, at: int) -> bool:
    return "arn:" in re.split(r"[\s\"'=]", text[max(0, at - 100) : at])[-1]


def _is_nsswitch(text: str, at: int) -> bool:
    start = text.rfind("\n", 0, at) + 1
    return bool(_NSSWITCH.search(text[start : start + 2000].split("\n", 1)[0]))


def _within_quotes(match: re.Match[str], group: int) -> tuple[int, int]:
    value = match[group]
    quote = re.match(r"\\*[\"']", value)
    size = len(quote[0]) if quote else 0
    return match.start(group) + size, max(match.start(group) + size, match.end(group) - size)


def _mark(value: str, is_sure: bool) -> str:
    if value.isdecimal():
        return "10000000" if is_sure else "1"
    mark = SURE if is_sure else DOUBTFUL
    return f'["{mark}"]' if value.startswith("[") else mark


def _valued(match: re.Match[str], group: int, what: str, is_sure: bool) -> Secret:
    start, end = _within_quotes(match, group)
    return Secret(start, end, what, _mark(match.string[start:end], is_sure), is_sure)


# -- what is a secret by the command that takes it --------------------------------------------------------------------

#: between a command and its option: not past its end
_REST = r"(?:\\\r?\n|[^\n;|&]){0,400}?"


def _commands_with(value: str) -> tuple[re.Pattern[str], ...]:
    patterns = (
        rf"\b(?:docker|podman|nerdctl|buildah|skopeo|oras|crane|helm)\b{_REST}\blogin\b{_REST}\s-p[ =]?{value}",
        rf"\bsshpass[ \t]+-p[ \t]?{value}",
        rf"\b(?:mysql\w*|mariadb[\w-]*)\b{_REST}\s-p(?![ \t])(?!ort){value}",
        rf"\bredis-cli\b{_REST}\s-a[ \t]+{value}",
        rf"\bldap(?:search|modify|add|delete|whoami)\b{_REST}\s-w[ \t]+{value}",
        rf"\bpass:(?![\s]){value}",
        rf"(?i)\bidentified[ \t]+(?:with[ \t]+\S+[ \t]+)?by[ \t]+(?=\\*[\"']){value}",
        rf"\blogin[ \t]+\S+\s+password[ \t]+{value}",
        rf"\b(?:echo|printf)[ \t]+(?:-n[ \t]+)?{value}[ \t]*\|[^\n]*(?:-stdin\b|sudo[ \t]+-S)",
    )
    return tuple(re.compile(pattern) for pattern in patterns)


_COMMANDS = _commands_with(_VALUE)
#: with the name of a user before it
_WITH_USER = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\bcurl\b{_REST}\s(?:-[a-zA-Z]*u|--user|--proxy-user|-U)[ =]?[\"']?[^\s:\"'$]+:([^\s\"']+)",
        rf"\b(?:smbclient|rpcclient|net)\b{_REST}\s-U[ ]?[\"']?[^\s%\"']+%([^\s\"']+)",
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


def _by_command(text: str) -> Iterator[Secret]:
    for pattern in _COMMANDS + _WITH_USER:
        for match in pattern.finditer(text):
            yield from _given(text, *_within_quotes(match, 1))
    for match in _CHPASSWD.finditer(text):
        group = 2 if match[2] is not None else 4
        for account in _ACCOUNT.finditer(text, *match.span(group)):
            if account[1] not in ("R", "RANDOM"):
                yield from _given(text, *account.span(1))


def _given(text: str, start: int, end: int) -> Iterator[Secret]:
    value = text[start:end]
    if not _HARMLESS.fullmatch(value) and not _is_filled_in(value):
        is_sure = len(value) >= _SHORTEST and _is_mixed(value)
        yield Secret(start, end, "a password given to a command", _mark(value, is_sure), is_sure)


# -- what stands behind a quote that nothing closes -------------------------------------------------------------------

_QUOTE = re.compile(r"(?<!\\)\\*+[\"']")
_OPEN_QUOTES = (
    re.compile(rf"(?im)(?:{_NAME}){_IS}{_OPEN_VALUE}"),
    re.compile(rf"(?im)(?:{_OTHER_NAME})(?:=|\\*[\"'][ \t]*[:=][ \t]*){_OPEN_VALUE}"),
    re.compile(_OPTION_NAME + _OPEN_VALUE),
    *_commands_with(_OPEN_VALUE),
)


def _behind_open_quotes(text: str, secrets: list[Secret]) -> Iterator[Secret]:
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
    _by_form,
    _in_urls,
    _by_name,
    _by_option,
    _by_command,
)
_RULES = (*_RULES_OF_PROSE, _by_line)

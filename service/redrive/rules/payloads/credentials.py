"""Patterns of secrets, as data: their names, their forms, and look-alike letters.

The rules of secret scanners are the yardstick (`tests/rules/test_scanners.py`). No
scanner is used while a job runs, because scanners need an HTTP client. They are made to
find one secret in a repository, not to remove every secret from a sentence.
"""

import re
from typing import NamedTuple


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


STEMS = re.compile(
    "passw(?:or)?d(?!less)|passphrase|passcode|pa55w|passwort|kennwort|wachtwoord|contrasena|senha"
    "|motdepasse|secret(?!ar)|token(?!iz)|credential|cookie|authori[sz]ation|bearer|apikey"
    "|privatekey|accesskey|secretkey|privkey|connectionstring|connstr|sess(?:ion)?id|htpasswd|netrc"
    "|onetimecode|2fa|mnemonic|creditcard|debitcard|card(?:no|num)|ccnum|cvv|passkey"
)
"""Parts that make a name secret, in small letters and without separators."""

WORDS = _names(
    "pwd pswd psw pw passwd auth jwt otp totp hotp mfa dsn sid csrf xsrf cvc csc cvn pan pin ssn"
    " iban signature sig hmac salt pat pem pfx pkey kek dek sas xauth tfa puk tan"
)
"""Words that make a name secret."""

LAST_WORDS = frozenset(("pass", "card", "session"))
"""Words that make a name secret if they come last; so `card_brand` is not secret."""

PAIRS = frozenset(
    f"{first} {second}"
    for seconds, firsts in {
        "key": "api app application access account client consumer decryption deploy encryption"
        " functions gpg host instrumentation license licence master pgp private recovery root rsa"
        " secret server service session shared signing ssh ssl storage subscription symmetric tls"
        " webhook wrapping activation",
        "id": "session sess",
        "string str": "connection conn database db",
        "url uri": "database db redis broker amqp mongo mongodb mysql postgres postgresql sentry",
        "no num number pan": "card credit debit",
        "code answer": "security verification recovery backup auth access login sms activation",
        "time": "one",
        "link url": "reset magic login invite signed presigned webhook",
        "phrase word": "seed recovery backup pass",
        "assertion response": "client saml",
        "account number": "bank account routing",
        "code": "sort",
        "security": "social",
    }.items()
    for first in firsts.split()
    for second in seconds.split()
)
"""Pairs of adjacent words that make a name secret."""

SPACED = frozenset(pair.split()[1] for pair in PAIRS)
"""Second words of pairs; in `API key: x` both words are the name."""

DESCRIBING = _names(
    "age alg algorithm at attempt attempts brand budget count counts dir enabled error errors"
    " exists expired expires expiration expiry file host in issuer len length limit max method min"
    " mode name names number_of path policy port present provider rate remaining required retries"
    " scheme scope scopes set size sock state status strength ttl type usage used valid verified"
    " version"
)
"""Last words of names that describe a secret without containing it: `token_type`."""

COUNTING = _names(
    "cached completion input max min num output prompt remaining total used"
)
"""First words of names of numbers: `max_tokens` counts tokens of a language model."""

DIGITS = _names("pin otp totp cvv cvc csc cvn code pan card ssn tan puk number no num")
"""Last words of names whose value may be a short number."""

REST_OF_LINE = re.compile("authori[sz]ation|cookie")
"""Names of headers whose value is the rest of the line."""

NOTHING = frozenset({""}) | _names(
    "none null nil true false undefined empty yes no redacted hidden masked * ** *** ****"
    " ***** ****** ******** ********** xxx n/a"
)
"""Values that mean that there is no secret."""

PROSE = _names(
    "a all already an and any bool boolean bytes can cannot could create created delete denied dict"
    " disabled does empty expected expired failed failure field for found get has have if in int"
    " integer invalid is it key list malformed mismatch missing must no none not number object"
    " optional or read refused rejected required revoked should str string that the this too"
    " unable unauthorized undefined unexpected unknown unsupported update value was will wrong"
    " write argument option parameter"
)
"""Words that follow a name and a colon in a sentence: `token: expired`."""

LOOK_ALIKES = str.maketrans(
    "абвԁеһіјкӏмнорԛгѕтцуԝхѵАВСЕНІЈКМОРԚЅТУԜХ"
    "αβεηικνορτυχωγσΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"
    "ıɑɡɩɪʀʟɴʏʙɢʜᴀᴄᴅᴇᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢꜰօսհոց",
    "a6bdehijklmhopqrstuywxvABCEHIJKMOPQSTYWX"
    "aBenikvoptuxwyoABEZHIKMNOPTYX"
    "iagiirlnybghacdejkmopstuvwzfouhng",
)
"""Cyrillic, Greek, Armenian and small capital letters that look like Latin letters."""


class Leak(NamedTuple):
    """Pattern of a secret in a text: the group `secret`.

    `hints`: the pattern is tried only if the text contains one of them, in small
    letters. A pattern with a group `name` matches only if the name is secret. All
    patterns take linear time: each repetition is bounded or possessive.
    """

    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _leak(pattern: str, *hints: str, flags: re.RegexFlag = re.NOFLAG) -> Leak:
    return Leak(hints, re.compile(pattern, flags))


QUOTED = r"""\"(?:\\.|[^\"\\])*+(?:\"|\Z)|'(?:\\.|[^'\\])*+(?:'|\Z)"""
_NAME = r"(?P<name>[\w.:-]{1,80})"
_WORD_TO_ENTER = r"pass(?:word|wd|phrase|code)|pwd"

_KNOWN_FORMS = r"""
      gh[pousr]_\w{20,}+ | github_pat_\w{20,}+
    | gl(?:pat|dt|ft|soat|rt|cbt|ptt|agent|oas|imt|ffct)-[\w-]{16,}+(?:\.\w\w\.\w{9})?+
    | (?!ACCA[0-9A-F]{17})(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{12,}+ | LTAI[A-Za-z0-9]{12,}+
    | AIza[\w-]{30,}+ | ya29\.[\w-]{16,}+ | GOCSPX-[\w-]{16,}+ | 1//0[\w-]{20,}+
    | sk-(?=[\w-]{0,100}?\d)[\w-]{16,}+ | (?:sk|pk|rk)_(?:live|test|prod)_\w{8,}+
    | (?:shippo|flw|pat|key|api)_(?:live|test|prod)_\w{10,}+
    | npm_[A-Za-z0-9]{20,}+ | pypi-[\w-]{16,}+ | rubygems_[0-9a-f]{30,}+ | dckr_[pos]at_[\w-]{16,}+
    | whsec_[\w+/=-]{16,}+ | (?i:xox[a-z])-[\w-]{8,}+ | xapp-[\w-]{16,}+ | xoxe\.[\w.-]{16,}+
    | [MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}+ | \d{8,10}:[\w-]{35}(?![\w-])
    | SG\.[\w-]{16,}+\.[\w.=-]{16,}+ | key-[0-9a-f]{32}(?!\w) | [0-9a-z]{32}-us\d{1,2}(?!\w)
    | (?:AC|SK)(?=\w{0,31}\d)[0-9a-zA-Z]{32}(?!\w) | sq0[a-z]{3}-[\w-]{20,}+ | EAA[A-Za-z0-9]{30,}+
    | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} | do[opr]_v1_[0-9a-f]{32,}+
    | dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{20,}+ | hf_[A-Za-z0-9]{30,}+ | hv[sbr]\.[\w-]{20,}+
    | s\.(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{24}(?!\w) | [a-z0-9]{14}\.atlasv1\.[\w-]{30,}+
    | dapi[0-9a-f]{32} | lin_(?:api|oauth)_\w{20,}+ | ntn_\w{20,}+ | PMAK-[\w-]{20,}+
    | NR(?:AK|JS|II|RA|IQ)-[\w-]{16,}+ | gl(?:c|sa)_[\w+/=-]{20,}+ | pscale_\w{2,8}_[\w.-]{20,}+
    | sb[ps]_\w{20,}+ | AT(?:ATT3|CTT3|BB)[\w=-]{16,}+ | sl\.[\w-]{60,}+ | fig[dou]_[\w-]{20,}+
    | fo1_[\w-]{20,}+ | HRKU-[\w-]{16,}+ | AGE-SECRET-KEY-1[A-Z0-9]{20,}+
    | pat\w{14}\.[0-9a-f]{32,}+ | AKC[A-Za-z0-9]{10,}+ | CLOJARS_\w{20,}+
    | sntry[su]_[\w=+/-]{20,}+ | tskey-[\w-]{16,}+
    | (?:pplx|xai)-\w{20,}+ | gsk_\w{20,}+ | r8_\w{20,}+ | CCIPAT_\w{16,}+ | bkua_\w{20,}+
    | pul-[0-9a-f]{40} | rdme_\w{20,}+ | EZ[AT]K\w{30,}+ | CFPAT-[\w-]{20,}+ | tfp_[\w-]{30,}+
    | A3-[A-Z0-9]{6}-[A-Z0-9-]{20,}+ | ops_eyJ[\w+/=-]{20,}+ | p8e-\w{20,}+ | pnu_\w{20,}+
    | ABSK[\w+/=]{40,}+ | bedrock-api-key-[\w+/=-]{20,}+ | \w{3}\dQ~[\w.~-]{25,}+
    | dt0c01\.[A-Z0-9]{16,}+\.\w{30,}+ | \d{15,16}\|[\w-]{27} | FLW(?:SEC|PUB)K_TEST-[\w-]{10,}+
    | fm[12]_[\w+/=-]{40,}+ | fio-u-[\w=-]{30,}+ | GR1348941[\w-]{20}
    | pat\.[\w-]{20,}+\.[\w.-]{20,}+ | AQVN[\w-]{35,}+
    | api_org_\w{30,}+ | ico-[A-Za-z0-9]{32} | s-s4t2(?:ud|af)-[0-9a-f]{30,}+ | \w{6}_\w{29}_mmk
    | API-[A-Z0-9]{26} | sha256~[\w-]{43}
    | access-(?:sandbox|development|production)-[0-9a-f-]{30,}+
    | tk-us-[\w-]{40,}+ | xkeysib-[0-9a-f]{40,}+-\w+ | sm_[aps]at_\w{16}
    | t1\.[\w-]+=*\.[\w-]{60,}+ | duffel_\w{4,8}_[\w=-]{40,}+
    | sc_\w{4,80}+\.\w{3,80}+\.acc[_-][\w.-]{20,}+
    | cmVmd[A-Za-z0-9]{40,}+ | ZXlK[\w+/=]{30,}+
    | eyJrIjoi[\w+/=-]{20,}+ | v1\.0-[0-9a-f]{24}-[0-9a-f]{60,}+
    | (?<![\w-])(?:tgp_v1|fw|jina|opk|wandb_v1|e2b|vc[pkiar]|vercel_blob_rw|nfp|cf(?:ut|at|k)|xau
        |rnd|napi|prtapi|sq[uap]|CCIPRJ|bk[cg]t|depot_\w{3,7}|nxc|jsr[pdt]|hc[a-z]ik|phx|sgp
        |dd(?:pat|app)|pylf_v1|dbt[cu]|tr_(?:dev|prod|stg|pat)|cal_(?:live|test)|apify_api|bb_live
        |tmprl|polar_(?:oat|pat)|pdl_(?:live|sdbx|ntfset)|secret_admin|unkey|spcl)
      _(?=[\w-]{0,40}?\d)(?![0-9a-f]{8}-[0-9a-f]{4}-)[\w-]{20,}+
    | (?:retool_01|y[0-4]_AgAAAA)[\w-]{20,}+
    | (?:(?:nvapi|tvly|pk-lf|xsmtpsib|FLWSECK|glwt|secret-(?:live|test)|signkey-(?:prod|test)
        |signoz|scp-live)-|FlyV1[ ])[\w/+-]{20,}+
    | sk_(?:V2_hgu|org_live|org_test)_\w{20,}+ | sk_(?=[A-Za-z+/]*\d)[A-Za-z0-9+/]{28,}+
    | (?:(?<!_)key|inc)_[0-9a-f]{64} | gta_[0-9a-f]{40} | pk-(?=[A-Za-z]*\d)[A-Za-z0-9]{28,}+
    | lsv2_[ps][tk]_[0-9a-f]{32}_[0-9a-f]{10} | pcsk_\w{5,6}_\w{40,}+
    | sb_secret_[\w-]{20,}+ | npg_[A-Za-z0-9]{12} | rzp_(?:live|test)_[A-Za-z0-9]{14}
    | live_[A-Za-z0-9]{30,}+ | re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24} | secret_[A-Za-z0-9]{43}
    | pk_\d{5,9}_[A-Z0-9]{32} | fc-[0-9a-f]{32} | csk-[a-z0-9]{48} | pa-[\w-]{43}(?![\w-])
    | (?:ak|as|md)-(?=[A-Za-z]*\d)[\w-]{22}(?![\w-]) | pat-(?:na|eu)\d-[0-9a-f-]{36}
    | (?:sdk|mob|api|xa[ap]t)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}
    | [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:(?:fx(?!\w)|[0-9a-f]{32})
    | AQ\.Ab8[\w-]{30,}+ | mlsn\.[0-9a-f]{40,}+ | dt0s\d\d\.[A-Z0-9]{8,}+\.\w{30,}+
    | [0-9a-f]{32}\.[A-Za-z0-9]{16}(?!\w) | st\.[0-9a-f-]{36}\.[0-9a-f]{20,}+\.[0-9a-f]{20,}+
    | ser\.[A-Za-z0-9]{22} | sl\.u\.[\w-]{60,}+ | 00D\w{12}![\w.]{40,}+ | vk1\.a\.[\w-]{60,}+
    | v[1-4]\.(?:local|public)\.[\w-]{40,}+ | snyk_uat\.[\w.]{20,}+ | secret-[A-Za-z0-9]{43}
    | MDAx[A-Za-z0-9+/=_-]{60,}+ | IQoJb3JpZ2lu[\w+/=-]{60,}+ | FwoGZXIvYXdz[\w+/=-]{60,}+
    | [\w+/-]{40,90}?(?:\+ASt|ACDb|AzFu|AzSe|\+ACR)[\w+/]{5,10}(?:==?|(?!\w))
    | [A-Za-z0-9]{50,56}JQQJ99[A-Za-z0-9]{18,}+ | [\w+/]{4}-l\d-s0:[\w+/]{20,}+
    | AKID[A-Za-z0-9]{32} | DO00[A-Z0-9]{16}(?!\w) | SCW[A-Z0-9]{17}(?!\w) | S[AOU]A[A-Z2-7]{55}
    | oy2[a-z0-9]{43} | cio[A-Za-z0-9]{32}(?!\w) | A{20,}[\w%]{50,}+ | IG[QA]\w{100,}+
    | AQ[VWX][\w-]{60,}+ | BQ[\w-]{100,}+ | AQE[\w+/=-]{60,}+ | sk[A-Za-z0-9]{80,}+
    | dose[0-9a-f]{32} | [0-9a-f]{36}NRAL | [0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![\w-])
    | [12]/\d{16}(?:/\d{16})?:[0-9a-f]{32} | \w{6}\.\w{6}:[\w-]{40,}+ | dG9rO[\w=+/-]{50,}+
    | (?:prod|dev|preview):[a-z]+-[a-z]+-\d+\|[\w-]{40,}+ | oauth:[a-z0-9]{30}(?!\w)
    | access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[0-9a-f]{32}
"""

LONG = re.compile(r"(?<![\w-])[\w-]{16}", re.ASCII)
"""A text without a run of this many characters contains none of the `FORMS`."""

FORMS = re.compile(rf"(?<![A-Za-z0-9])(?:{_KNOWN_FORMS})", re.ASCII | re.VERBOSE)
"""Credentials with a known form, recognised in any context."""

SIGNED = re.compile(r"ey(?<![A-Za-z0-9]ey)[\w-]{9,}+(?:\.[\w-]*+){0,4}", re.ASCII)
"""A signed token (JWT), or another text in base64.

This pattern also matches a text without a dot. A pattern that requires the dot would read the rest of
`-ey-ey-ey` again at each `ey`.
"""

SIGNED_HEAD = re.compile(r"(?<![A-Za-z0-9])eyJ[\w-]{8}", re.ASCII)
SIGNED_BODY = re.compile(r"[\w-]{18,}+\.ey[\w-]{10}", re.ASCII)
"""A `SIGNED` text is a token if its first part begins like JSON, or if its second part does."""

LEAKS = (
    # Keys in blocks.
    _leak(
        r"(?P<secret>-{4,5} ?BEGIN ?(?:[A-Z0-9 ]{0,40}PRIVATE KEY|PGP)[A-Z ]{0,20}-{4,5}"
        r"(?:(?!---- ?END).)*+(?:-{4,5} ?END[A-Z0-9 ]{0,60}-{4,5}|\Z))",
        "-begin",
        "- begin",
        flags=re.DOTALL,
    ),
    _leak(
        r"Private-Lines: ?\d{1,3}\s(?P<secret>(?:(?!Private-MAC).)*+)",
        "private-lines",
        flags=re.DOTALL,
    ),
    # Drivers add the row's values, the statement and its parameters to messages.
    _leak(
        r"\bDETAIL: "
        r"(?P<secret>(?:(?!\n[A-Z]{1,20}: |\n\[|\b(?:HINT|CONTEXT|QUERY|WHERE): ).)*+)",
        "detail: ",
        flags=re.DOTALL,
    ),
    _leak(
        r"\[(?:SQL|parameters): (?P<secret>.*+)", "[sql: ", "[param", flags=re.DOTALL
    ),
    _leak(r"\b[Kk]ey \([^()\n]{0,200}+\)=\((?P<secret>(?:(?!\) )[^\n])*+)", "key ("),
    _leak(r"Failing row contains (?P<secret>[^\n]*+)", "failing row"),
    _leak(
        r"(?:Duplicate entry|duplicate key value is|dup key:) "
        r"(?P<secret>(?:(?! for key)[^\n])*+)",
        "dup",
    ),
    _leak(
        r"(?:invalid input (?:syntax|value) for (?:type|enum) [^\n:]{1,80}: "
        r"|(?:date/time field )?value (?:out of range: )?(?=\"[^\"\n]*\" is out of range|\")"
        r"|malformed \w{1,20} literal: )(?P<secret>\"[^\n]*+)",
        "invalid input",
        "out of range",
        "malformed",
    ),
    # The user's part of a URL.
    _leak(
        r"(?<=://)[^\s:/@\"'<>]*+:(?!\d{1,5}[/?#])"
        r"(?P<secret>[^\s\"'<>@]{0,300}+(?:@[^\s\"'<>@]{0,300}+(?=@))*+)@",
        "@",
    ),
    _leak(r"(?:(?<=http://)|(?<=https://))(?P<secret>[^\s:/@\"'<>?#]++)@", "@"),
    _leak(r"(?<=://)(?P<secret>(?=[^\s:/@]*\d)[^\s:/@\"'<>?#]{16,}+)@", "@"),
    _leak(
        r"(?<![\w:/.-])[\w.-]{1,40}:(?P<secret>(?!//)[^\s:@/\"']{3,200}+)@[\w.-]{1,200}+:\d",
        "@",
    ),
    # Addresses that are secret themselves.
    _leak(
        r"(?:hooks\.slack\.com/\w{1,20}/|/api/webhooks/\d{1,30}/|webhook\.office\.com/"
        r"|hooks\.zapier\.com/hooks/|hook\.[\w.]{1,20}make\.com/|maker\.ifttt\.com/trigger/"
        r"|/hooks/(?=[a-z0-9]{26}(?!\w)))"
        r"(?P<secret>[^\s\"'<>?#]++)",
        "hook",
        "ifttt",
        flags=re.IGNORECASE,
    ),
    # Schemes of HTTP's authorization, but not "Basic authentication".
    _leak(
        r"\b(?:bearer|basic|digest|negotiate)\s{1,3}"
        r"(?P<secret>(?=\S*(?:\d|(?-i:[a-z][A-Z])|=))[\w.~+/=-]{8,}+)",
        "bearer",
        "basic",
        "digest",
        "negotiate",
        flags=re.IGNORECASE,
    ),
    # A name and its value without a sign between them.
    _leak(
        rf"(?<![\w-])--(?P<name>[A-Za-z][\w-]{{0,80}}+)[ \t]{{1,3}}(?!-)"
        rf"(?P<secret>{QUOTED}|[^\s\"']++)",
        "--",
    ),
    _leak(
        r"(?<!\S)(?:-u|--(?:proxy-)?user)[ =]?[\"']?[^\s:\"']{1,80}:(?P<secret>\S++)",
        "-u",
    ),
    _leak(
        r"\b(?:mysql|sshpass|redis-cli|docker login)[^\r\n]{0,80}? "
        r"-(?:p ?|a )(?P<secret>[^\s-]\S*+)",
        " -p",
        " -a ",
    ),
    _leak(
        rf"\b(?:identified by|{_WORD_TO_ENTER})\s{{1,3}}(?P<secret>{QUOTED})",
        "identified by",
        "pass",
        "pwd",
        flags=re.IGNORECASE,
    ),
    _leak(r"\blogin\s{1,3}\S{1,80}\s{1,3}password\s{1,3}(?P<secret>\S++)", "login "),
    _leak(
        rf"\b(?:{_WORD_TO_ENTER}|token|secret|api[ _-]?key|code|pin|otp)\s"
        r"(?:is|was|provided|given|supplied|used|of|=)\s?:?\s?"
        rf"(?P<secret>{QUOTED}|(?=\S*\d)[^\s\"',]{{4,}}+)",
        "pass",
        "pwd",
        "token ",
        "secret ",
        "key ",
        "code ",
        "pin ",
        "otp ",
        flags=re.IGNORECASE,
    ),
    _leak(r"(?<![\w-])AUTH (?P<secret>(?=\S*\d)\S{6,}+)", "auth "),
    # A name and its value in different places.
    _leak(rf"<{_NAME}(?:\s[^<>]{{0,200}}+)?>(?P<secret>[^<]++)", "</"),
    _leak(
        r"[\"'](?:name|key|header|field)\\{0,3}[\"']\s{0,3}:\s{0,3}\\{0,3}[\"']"
        rf"{_NAME}\\{{0,3}}[\"']\s{{0,3}},\s{{0,3}}"
        rf"\\{{0,3}}[\"'](?:value|val)\\{{0,3}}[\"']\s{{0,3}}:\s{{0,3}}(?P<secret>{QUOTED}|[^\s,}}]++)",
        "value",
    ),
    _leak(
        rf"\b(?:name|key)=[\"']?{_NAME}[\"']?(?:\s?[^\r\n<>=]{{0,40}}\bvalue=|[^\r\n]{{0,80}}+\r?\n\r?\n)"
        rf"(?P<secret>{QUOTED}|[^\s<>]++)",
        "name=",
        "key=",
    ),
    _leak(  # pydantic
        rf"^{_NAME}\r?\n[ ]{{2}}[^\n]*?, input_value=(?P<secret>[^\n]*(?=, input_type=)|[^\n]++)",
        "input_value=",
        flags=re.MULTILINE,
    ),
    _leak(
        rf"[(\[](?=b?[\"']{_NAME}[\"'],\s?b?(?P<secret>(?:\"(?![a-z_ ]*\")|'(?![a-z_ ]*'))"
        r"(?:[^\"'\\]|\\.)*+[\"']?))",
        "',",
        '",',
    ),
)
"""Texts, addresses and commands that contain a secret."""

CARD = re.compile(r"\d(?<![\w-]\d)(?<!\d\.\d)(?:[ .\-]{0,2}\d){12,18}(?!\w)(?!-\w)")
"""13 to 19 digits in any grouping, not inside a UUID. The check digit decides."""

ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11,16}"
    r"|(?:35|60|62|64|65|81|82)\d{14,17}|(?:50|5[6-9]|6\d)\d{11,17}"
)
"""First digits and lengths of card numbers (ISO/IEC 7812)."""

IBAN = re.compile(
    r"[A-Z](?<![A-Za-z0-9].)[A-Z]\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}+(?:[ -]?[A-Z0-9]{1,3})?+(?!\w)"
)
"""Account number of a bank (ISO 13616). The check digits decide."""

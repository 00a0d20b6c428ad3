"""Sign-in by OpenID Connect: authlib speaks the protocol, this module reads claims.

It uses the code flow with PKCE, state and nonce. A signed cookie keeps the state of a
sign-in, so any replica can complete it, and no other browser can. The console loads
this module only if a provider is set, because it takes a tenth of the console's memory.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from authlib.integrations.starlette_client import OAuth, OAuthError
from fastapi import Request
from fastapi.responses import Response
from joserfc.errors import JoseError

from redrive.verbs.refusal import Refused

logger = logging.getLogger("redrive.extras.console")

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
)
"""Signature algorithms with a private key, which only the provider has."""

NO_ANSWER = (httpx2.HTTPError, ValueError, RuntimeError)
OFFERED_ALGORITHMS = "id_token_signing_alg_values_supported"
CODE = re.compile(r"[a-z_]{1,40}")
FAILED = "the sign-in failed; start it again"


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """Registration of this console at a provider, and the claims to read."""

    issuer: str
    client_id: str
    client_secret: str | None
    redirect: str
    scopes: str = "openid email profile"
    user_claim: str = "email"
    groups_claim: str = "groups"


class Provider:
    """An identity provider. It need not be reachable before the first sign-in."""

    def __init__(self, client: Client) -> None:
        self.client = client
        issuer = client.issuer.rstrip("/")
        self._app: Any = OAuth().register(  # pyright: ignore[reportUnknownMemberType] # untyped
            "oidc",
            client_id=client.client_id,
            client_secret=client.client_secret,
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_kwargs={"scope": client.scopes, "code_challenge_method": "S256"},
        )

    @property
    def host(self) -> str:
        """Return the name of the provider as people know it."""
        return urlsplit(self.client.issuer).hostname or ""

    async def begin(self, request: Request, pending: dict[str, Any]) -> Response:
        """Redirect a user to the provider; store in `pending` what `complete` needs.

        Raises:
            Refused: the provider does not answer.
        """
        # authlib keeps state, nonce and the PKCE verifier in the session of Starlette.
        request.scope["session"] = pending
        redirect = self.client.redirect

        try:
            await self._discover()
            answer: Response = await self._app.authorize_redirect(request, redirect)
        except NO_ANSWER as error:
            raise _away(error) from None

        return answer

    async def complete(
        self, request: Request, pending: dict[str, Any]
    ) -> tuple[str, frozenset[str]]:
        """Return name and groups of a user who comes back from the provider.

        Raises:
            Refused: the sign-in did not begin here, or the claims are not valid.
        """
        request.scope["session"] = pending

        try:
            await self._discover()
            claims = await self._claims(await self._token(request))
        except (OAuthError, JoseError) as error:
            logger.warning("a sign-in failed", extra={"error_class": _code(error)})
            raise Refused(403, FAILED) from None
        except NO_ANSWER as error:
            raise _away(error) from None

        groups = claims.get(self.client.groups_claim)
        return self._name(claims), _groups(groups)

    async def _token(self, request: Request) -> Mapping[str, Any]:
        """Exchange the code of a sign-in for its token."""
        ours = {
            "iss": {"values": [self.client.issuer]},
            "aud": {"values": [self.client.client_id]},
        }
        token: Mapping[str, Any] = await self._app.authorize_access_token(
            request, claims_options=ours
        )
        return token

    async def _discover(self) -> None:
        """Load the provider's metadata, and allow only the algorithms we accept."""
        found = await self._app.load_server_metadata()
        if found.get("issuer") != self.client.issuer:
            # authlib keeps metadata for good. Let the next sign-in load it again.
            self._app.server_metadata.pop("_loaded_at", None)
            fault = (
                "the issuer of the provider differs from REDRIVE_CONSOLE_OIDC_ISSUER"
            )
            raise Refused(503, f"{fault}; both must be identical")

        # The standard requires RS256 of each provider, even if it lists no algorithm.
        offered = found.get(OFFERED_ALGORITHMS) or ["RS256"]
        found[OFFERED_ALGORITHMS] = [each for each in offered if each in ALGORITHMS]

    async def _claims(self, token: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the claims of the ID token, completed from the userinfo endpoint."""
        # authlib puts the claims of the ID token here when it has checked them.
        claims: Mapping[str, Any] | None = token.get("userinfo")
        if claims is None:
            raise Refused(403, FAILED)
        if self._are_complete(claims):
            return claims

        more = await self._app.userinfo(token=token)
        # The standard requires this check: the answer could be about another user.
        if more.get("sub") != claims["sub"]:
            raise Refused(403, FAILED)

        # The ID token is signed, so its claims take precedence.
        return {**more, **claims}

    def _are_complete(self, claims: Mapping[str, Any]) -> bool:
        """Return True if the claims suffice, or if the provider offers no others."""
        if not self._app.server_metadata.get("userinfo_endpoint"):
            return True
        return {self.client.user_claim, self.client.groups_claim} <= claims.keys()

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self.client.user_claim)
        if not isinstance(name, str):
            setting = f"REDRIVE_CONSOLE_OIDC_USER_CLAIM is {self.client.user_claim}"
            raise Refused(403, f"your provider did not send your name; {setting}")

        # Some providers do not send this claim, and some send it as text.
        is_verified = claims.get("email_verified", True) in (True, "true")
        if self.client.user_claim == "email" and not is_verified:
            raise Refused(403, "your provider did not verify your email")

        return name


def _code(error: Exception) -> str:
    """Return an error code of the standard, or the class of the error.

    No other text is logged, because the address may hold anything.
    """
    code = getattr(error, "error", None) or ""
    if CODE.fullmatch(code):
        return code

    return type(error).__name__


def _groups(value: Any) -> frozenset[str]:
    if not isinstance(value, list):
        value = [value]
    groups = cast("list[Any]", value)
    return frozenset(group for group in groups if isinstance(group, str))


def _away(error: Exception) -> Refused:
    extra = {"error_class": type(error).__name__}
    logger.warning("the OIDC provider does not answer", extra=extra)
    return Refused(503, "the identity provider does not answer correctly; try again")

"""Sign-in by OpenID Connect: authlib implements the protocol, and this module reads the
claims.

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

from redrive.console.security.access import Refused, Role

logger = logging.getLogger("redrive.console")

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

CODE = re.compile(r"[a-z_]{1,40}")
FAILED = "the sign-in failed; start it again"


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """Registration of this console at a provider, and the claims that identify a
    user.
    """

    issuer: str
    client_id: str
    client_secret: str | None
    redirect: str
    scopes: str = "openid email profile"
    user_claim: str = "email"
    groups_claim: str = "groups"


class Provider:
    """An identity provider. It need not be reachable before the first sign-in."""

    def __init__(self, client: Client, roles: Mapping[str, Role]) -> None:
        self.client, self._roles = client, roles
        self._app: Any = OAuth().register(  # pyright: ignore[reportUnknownMemberType] # untyped
            "oidc",
            client_id=client.client_id,
            client_secret=client.client_secret,
            server_metadata_url=f"{client.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={"scope": client.scopes, "code_challenge_method": "S256"},
        )

    @property
    def host(self) -> str:
        """Return the name of the provider as people know it."""
        return urlsplit(self.client.issuer).hostname or ""

    @property
    def roles(self) -> Mapping[str, Role]:
        """Return the roles of the provider's groups."""
        return self._roles

    async def begin(self, request: Request, pending: dict[str, Any]) -> Response:
        """Redirect a user to the provider; store in `pending` what `complete` needs.

        Raises:
            Refused: the provider does not answer.
        """
        request.scope["session"] = pending
        try:
            await self._discover()
            answer: Response = await self._app.authorize_redirect(
                request, self.client.redirect
            )
        except (httpx2.HTTPError, ValueError, RuntimeError) as error:
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
        ours = {
            "iss": {"values": [self.client.issuer]},
            "aud": {"values": [self.client.client_id]},
        }
        try:
            await self._discover()
            token = await self._app.authorize_access_token(request, claims_options=ours)
            claims = await self._claims(token)
        except (OAuthError, JoseError) as error:
            # Log only an error code of the standard: the address may hold anything.
            code = (
                error.error
                if CODE.fullmatch(error.error or "")
                else type(error).__name__
            )
            logger.warning("a sign-in failed", extra={"error_class": code})
            raise Refused(403, FAILED) from None
        except (httpx2.HTTPError, ValueError, RuntimeError) as error:
            raise _away(error) from None
        return self._name(claims), _groups(claims.get(self.client.groups_claim))

    async def _discover(self) -> None:
        found = await self._app.load_server_metadata()
        if found.get("issuer") != self.client.issuer:
            self._app.server_metadata.pop("_loaded_at", None)
            told = "the issuer of the provider differs from REDRIVE_CONSOLE_OIDC_ISSUER"
            raise Refused(503, f"{told}; both must be identical")
        offered = found.get("id_token_signing_alg_values_supported") or ["RS256"]
        found["id_token_signing_alg_values_supported"] = [
            a for a in offered if a in ALGORITHMS
        ]

    async def _claims(self, token: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the claims of the ID token, completed from the userinfo endpoint as
        the standard says.
        """
        claims: Mapping[str, Any] | None = token.get("userinfo")
        if claims is None:
            raise Refused(403, FAILED)
        wanted = {self.client.user_claim, self.client.groups_claim}
        if wanted <= claims.keys() or not self._app.server_metadata.get(
            "userinfo_endpoint"
        ):
            return claims
        more = await self._app.userinfo(token=token)
        if more.get("sub") != claims["sub"]:
            raise Refused(403, FAILED)
        return {**more, **claims}

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self.client.user_claim)
        if not isinstance(name, str):
            asked = f"REDRIVE_CONSOLE_OIDC_USER_CLAIM is {self.client.user_claim}"
            raise Refused(403, f"your provider did not send your name; {asked}")
        if self.client.user_claim == "email" and claims.get("email_verified") is False:
            raise Refused(403, "your provider did not verify your email")
        return name


def _groups(value: Any) -> frozenset[str]:
    many = cast("list[Any]", value) if isinstance(value, list) else [value]
    return frozenset(group for group in many if isinstance(group, str))


def _away(error: Exception) -> Refused:
    logger.warning(
        "the OIDC provider does not answer", extra={"error_class": type(error).__name__}
    )
    return Refused(503, "the identity provider does not answer correctly; try again")

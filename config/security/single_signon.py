"""OpenID Connect as the environment configures it, in the shape that allauth wants."""

from __future__ import annotations

from typing import Any

from config.env import Env

DISCOVERY = "/.well-known/openid-configuration"


def oidc_providers(env: Env) -> dict[str, Any]:
    """Return allauth's providers: one where an issuer is named, none otherwise."""
    if not env.oidc_issuer_url:
        return {}
    return {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "APPS": [
                {
                    "provider_id": "sso",
                    "name": "Single sign-on",
                    "client_id": env.oidc_client_id,
                    "secret": env.oidc_client_secret,
                    # allauth joins the address of the discovery document to it as text.
                    "settings": {"server_url": env.oidc_issuer_url.rstrip("/")},
                }
            ],
        }
    }


def discovery_of(env: Env) -> str:
    """Return where the issuer describes itself; it may be named by that very address."""
    return env.oidc_issuer_url.rstrip("/").removesuffix(DISCOVERY) + DISCOVERY

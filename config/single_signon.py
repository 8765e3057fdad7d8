"""OpenID Connect as the environment configures it, in the shape that allauth wants."""

from __future__ import annotations

from typing import Any

from config.env import Env


def oidc_providers(env: Env) -> dict[str, Any]:
    """Return allauth's providers: one where an issuer is named, none otherwise."""
    if not env.oidc_issuer_url:
        return {}
    if not env.oidc_client_id or not env.oidc_client_secret:
        raise SystemExit(
            "OFFPEAK_OIDC_ISSUER_URL needs OFFPEAK_OIDC_CLIENT_ID and OFFPEAK_OIDC_CLIENT_SECRET"
        )
    return {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "APPS": [
                {
                    "provider_id": "sso",
                    "name": "Single sign-on",
                    "client_id": env.oidc_client_id,
                    "secret": env.oidc_client_secret,
                    "settings": {"server_url": env.oidc_issuer_url},
                }
            ],
        }
    }

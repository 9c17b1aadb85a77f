"""DescribeDelegationToken (key 41), versions 0 to 3: the tokens that the requester may see, with their HMACs."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.security.create_delegation_token import require_known_peer
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.tokens import Token, visible
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(context: Context, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    """The tokens of the named owners, or of all; tokens that the requester may not see are left out without an error."""
    try:
        require_known_peer(context)
        context.services.tokens.require_secret()
    except ApiError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)

    def may_see(token: Token) -> bool:
        return context.allows(
            Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id, quietly=True
        ) or context.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, quietly=True)

    owners = request.owners
    wanted = None if owners is None else [f"{row.principal_type}:{row.principal_name}" for row in owners]
    tokens = visible(context.services.image.tokens.values(), context.principal, wanted, may_see)
    return DescribeDelegationTokenResponse(tokens=[_row(context, token) for token in tokens])


def _row(context: Context, token: Token) -> DescribedDelegationToken:
    (owner_type, _, owner), (kind, _, name) = token.owner.partition(":"), token.requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=context.services.tokens.hmac_of(token.id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )

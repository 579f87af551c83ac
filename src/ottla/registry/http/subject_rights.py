"""Roles on some subjects only: what a request with such rights may do, decided before its handler runs.

A route with a subject needs its role on that subject. A route without one needs it on the whole registry, except that
everybody may read what names no subject; handlers of lists leave out what `Request.sees` does not allow. Schemas that a
new schema refers to must be visible too: messages about them would show what they hold.
"""

from __future__ import annotations

from ottla.registry.decisions import RegisterRequest
from ottla.registry.errors import RegistryError
from ottla.registry.http.answers import Request
from ottla.registry.http.subjects import subject_of
from ottla.registry.state import GLOBAL
from ottla.registry.subjects import context_of, in_context
from ottla.security.grants import SUBJECT, GrantedUser, Rights

_WITH_SUBJECT = ("subjects", "config", "mode", "compatibility")
_DENIED = 40301


def check_rights(request: Request, user: object, role: str) -> None:
    """RegistryError unless the user's grants allow this request; `request.parts` is what its route matched."""
    if not isinstance(user, GrantedUser):
        return
    rights = user.rights
    request.sees = lambda subject: rights.sees(SUBJECT, subject)
    place = request.path[2:] if request.context is not None else request.path
    if request.parts and place[0] in _WITH_SUBJECT:
        _on_subject(request, rights, role)
    elif role != "read" and not rights.may(role):
        raise RegistryError(_DENIED, f"User is denied operation: the role {role} on the whole registry is needed")


def _on_subject(request: Request, rights: Rights, role: str) -> None:
    subject = subject_of(request)
    # `:.:` is the default context as a whole: a pattern of subjects, be it `*`, does not reach what holds for everybody.
    if not rights.may(role, *(() if subject == GLOBAL else (SUBJECT, subject))):
        raise RegistryError(_DENIED, f"User is denied operation {role} on subject {subject}")
    body = _body(request)
    for reference in body.references or ():
        named = in_context(context_of(subject), reference.subject)
        if not rights.sees(SUBJECT, named):
            raise RegistryError(
                _DENIED, f"User is denied operation read on subject {named}, which the schema refers to"
            )
    if (body.id or 0) > 0 and not rights.may(role):
        text = f"the role {role} on the whole registry is needed to choose an id: subjects share them"
        raise RegistryError(_DENIED, f"User is denied operation: {text}")


def _body(request: Request) -> RegisterRequest:
    """Of a schema, read as its handler reads it: what one reader takes and the other does not would slip through. A body
    that cannot be read is refused by the handler, with the reason."""
    try:
        return request.decode(RegisterRequest)
    except RegistryError:
        return RegisterRequest()

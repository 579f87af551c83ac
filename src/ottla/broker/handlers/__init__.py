"""Handlers: `handle(context, request)` answers an API. The context names the plane that the handler may touch.

Most modules serve one API and have its name; `ottla.broker.apis` lists those that serve several.
"""

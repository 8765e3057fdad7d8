"""The site's pages. A page reads several apps' queries, so pages live above all of them.

Each handler parses, asks, and renders; what a form asks for goes to the command that the API
calls too, and a refusal is shown in place, with what to do about it.
"""

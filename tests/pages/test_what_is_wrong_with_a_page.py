"""What is wrong with how a page looks is found in both schemes, among much that is right."""

from __future__ import annotations

from tests.pages.browser import browsing, faults, violations

PAGE = """<!doctype html><html lang="en"><title>A page</title><style>
  body { background: white; color: black; }
  @media (prefers-color-scheme: dark) {
    body { background: black; color: white; }
    .pale { color: #222; }
    .card { background: #eee; }
    #over { position: absolute; inset-block-start: 0; background: #ddd; }
  }
</style><main><h1>A page</h1><p>one</p><p>two</p>
<p class="pale">three</p><div class="card"><p>four</p></div><p id="over">five</p></main></html>"""


def test_what_is_wrong_in_the_other_scheme_alone_is_found_among_what_looks_alike() -> None:
    with browsing() as (_, page, _):
        page.set_content(PAGE)
        wide = violations(page)
        found = faults(page, "light")

    assert wide == []
    wrong = [each.partition(" Fix")[0] for each in found]
    assert wrong == [
        "color-contrast: .pale",
        "color-contrast: div > p",
        "color-contrast: #over",
    ]
    assert all(each.endswith("when dark") for each in found)

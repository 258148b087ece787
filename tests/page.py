"""A page as html.parser sees it, for tests: elements with their attributes and their text; tags that do not match."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "link", "img", "hr"}


@dataclass(eq=False)
class Element:
    tag: str
    attributes: dict
    text: str = ""
    inside: list = field(default_factory=list)  # of elements, from the outermost to its own parent


class Page(HTMLParser):
    """page.all("td") -> every element of that tag, in the order of the page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.wrong = [], [], []
        self.feed(text)
        self.close()
        self.wrong += [element.tag for element in self.open]

    def all(self, tag, **attributes):
        wanted = attributes.items()
        return [one for one in self.elements if one.tag == tag and wanted <= one.attributes.items()]

    def handle_starttag(self, tag, attrs):
        self.elements.append(Element(tag, dict(attrs), inside=list(self.open)))
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag):
        if not self.open or self.open.pop().tag != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        for element in self.open:
            element.text += data

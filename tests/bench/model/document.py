"""Puts what a run printed into a document, between the marks that name it."""
import re


def marked(name, text):
    return f"<!-- {name}: printed by make model -->\n{text.strip()}\n<!-- end of {name} -->"


def put(path, name, text):
    """Errors: ValueError, where the document has no such marks."""
    with open(path, encoding="utf-8") as f:
        document = f.read()
    block = re.compile(rf"<!-- {name}: .*?<!-- end of {name} -->", re.DOTALL)
    if not block.search(document):
        raise ValueError(f"{path} has no marks of '{name}'")
    with open(path, "w", encoding="utf-8") as f:
        f.write(block.sub(lambda _: marked(name, text), document))

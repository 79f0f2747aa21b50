"""manifests.py FOLDER: every YAML file below it is read, and each document of a kind has what all of Kubernetes' have."""
import pathlib
import sys

import yaml


def documents(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.yaml")):
        with open(path, encoding="utf-8") as f:
            for i, document in enumerate(yaml.safe_load_all(f)):
                yield path, i, document


def main(folder):
    n = 0
    for path, i, document in documents(folder):
        n += 1
        if not isinstance(document, dict):
            sys.exit(f"{path}: document {i} is {type(document).__name__}, it must be a mapping")
        if "kind" in document:
            for wanted in ("apiVersion", "metadata"):
                if wanted not in document:
                    sys.exit(f"{path}: document {i}, {document['kind']}, has no {wanted}")
            if "name" not in document["metadata"]:
                sys.exit(f"{path}: document {i}, {document['kind']}, has no name")
    if n == 0:
        sys.exit(f"{folder}: there is no YAML file")
    print(n, "documents")


if __name__ == "__main__":
    main(sys.argv[1])

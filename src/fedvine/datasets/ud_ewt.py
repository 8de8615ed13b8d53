"""22,072 words of web texts and how they are related; 18 classes. A substitute, not a benchmark.

It replaces Roman-empire, by its recipe from another text. It is not a published benchmark: never
report its scores under that name.

Source: Universal Dependencies, English Web Treebank, ``en_ewt-ud-dev.conllu``,
https://github.com/UniversalDependencies/UD_English-EWT (CC BY-SA 4.0, which holds for this graph
too), by N. Silveira et al., LREC 2014. A node is a word, punctuation left out; an edge joins it to
the next word or to its head (33,502 edges); the class is its relation to the head, one of the 17
most frequent or another. The 300 features are a word vector from co-occurrence in all of the
treebank and WordNet's glosses (PPMI and SVD). Split and shares are Roman-empire's in POWER's
Table 1.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import labelled, platonov

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = 6
SHARES = (0.5, 0.25, 0.25)

_FILE = "ud_ewt_dev_words.npz"


def load(folder: Path | None = None) -> Graph:
    """Return the graph, with dense features.

    ``folder`` holds ``ud_ewt_dev_words.npz`` (by default ``$FEDVINE_DATA/UD-EWT-words/raw``) with
    ``node_features``, ``node_labels``, ``edges`` (a row an edge) and ``class_names``. Raises
    :class:`FedvineError` if it is not there or cannot be read; it cannot be downloaded.
    """
    return labelled("ud_ewt", "UD-EWT-words/raw", [_FILE],
                    "UD_English-EWT (fedvine show ud_ewt tells how)",
                    lambda raw: platonov(raw / _FILE), folder)

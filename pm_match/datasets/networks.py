"""Networks with known true clusters, in small records whose ``networks`` a model sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Literal

import numpy as np
from scipy import sparse

from pm_match.checks import check_count, check_counts
from pm_match.datasets.files import read_arrays


@dataclass(frozen=True, eq=False)
class SyntheticNetworks:
    """Networks drawn from the subset ReMatch model, with what they were drawn from.

    Attributes
    ----------
    networks : dict of str to csr_array of int
        Adjacency matrices of 0 and 1, named ``"a"``, ``"b"``, …
    types : tuple of str
        Names of the types of objects: of rows and columns, or of both if there is one.
    clusters : dict of str to tuple of ndarray
        True labels of each network's objects, a vector for each type; -1 if irrelevant.
    density : ndarray, shape (n_clusters, n_clusters)
        Probability of an edge between relevant objects, by the clusters of row and column.
    noise : float
        Probability of an edge of irrelevant objects, if there are any.

    Examples
    --------
    >>> data = pmm.datasets.synthetic_networks(n_relevant=20, n_irrelevant=5, random_seed=1)
    >>> data.types, data.density.shape
    (('row', 'column'), (5, 5))
    """

    networks: dict[str, sparse.csr_array]
    types: tuple[str, ...]
    clusters: dict[str, tuple[np.ndarray, ...]]
    density: np.ndarray
    noise: float


@dataclass(frozen=True, eq=False)
class LabelledNetworks:
    """Real bipartite networks without a common object of the first type, whose classes are known.

    Attributes
    ----------
    networks : dict of str to csr_array of int
        Adjacency matrices of 0 and 1.
    types : tuple of str
        What rows and columns are, such as ``("document", "word")``.
    labels : dict of str to ndarray
        The class of each row, as a place in `label_names`.
    label_names : tuple of str
        Names of the classes.
    objects : dict of str to tuple of ndarray
        Names of each network's rows and columns.

    Examples
    --------
    >>> data = pmm.datasets.load_newsgroups_halves("data")  # doctest: +SKIP
    >>> data.types  # doctest: +SKIP
    ('document', 'word')
    """

    networks: dict[str, sparse.csr_array]
    types: tuple[str, str]
    labels: dict[str, np.ndarray]
    label_names: tuple[str, ...]
    objects: dict[str, tuple[np.ndarray, np.ndarray]]


def synthetic_networks(
    kind: Literal["noisy-dirichlet", "noisy-partial", "dirichlet"] = "noisy-dirichlet",
    *,
    n_relevant: int = 100,
    n_irrelevant: int = 20,
    n_clusters: int = 5,
    n_networks: int = 2,
    n_types: int = 2,
    random_seed: int | np.random.Generator | None = None,
) -> SyntheticNetworks:
    r"""Draw networks from the model, as section 6.1 of the robust network-matching paper [1]_.

    .. math::

        \theta_{kl}, \phi \sim \mathrm{Beta}(\tfrac12, \tfrac12), \quad
        x_{dnm} \sim \mathrm{Bernoulli}(\theta_{z_{d1n} z_{d2m}}^{r_{d1n} r_{d2m}}
        \phi^{1 - r_{d1n} r_{d2m}}),

    with θ and φ shared by the networks. The objects of every type are shuffled. Time and memory
    grow with the number of pairs of objects. Of the paper's kinds,

    - ``"noisy-dirichlet"`` draws the clusters' proportions from Dirichlet(1, …, 1) for each type
      and each network;
    - ``"noisy-partial"`` has ``n_relevant / n_clusters`` objects in every cluster, but each network
      lacks one cluster of each type: the first network the last, the second the first, the
      third the second and so on. So there are ``n_relevant`` objects less those of one cluster;
    - ``"dirichlet"`` is the first without irrelevant objects, whatever `n_irrelevant`.

    The paper does not say where φ comes from, nor the parameter of the Dirichlet distribution.

    Parameters
    ----------
    kind : str
        One of the three.
    n_relevant, n_irrelevant : int
        Number of relevant and of irrelevant objects of each type in each network.
    n_clusters : int
        Number of clusters of each type.
    n_networks : int
        Number of networks, named ``"a"``, ``"b"``, ….
    n_types : int
        2 for bipartite networks of rows and columns, 1 for directed networks of nodes, which have
        no edges to themselves.
    random_seed : int, Generator or None
        Seed.

    Returns
    -------
    SyntheticNetworks

    Raises
    ------
    ValueError
        If `kind` is none of these, a number is too small or, with ``"noisy-partial"``,
        `n_relevant` is not a multiple of `n_clusters`.

    References
    ----------
    .. [1] Iwata & Ishiguro (2017). Robust unsupervised cluster matching for network data. Data
       Mining and Knowledge Discovery 31.

    Examples
    --------
    >>> data = pmm.datasets.synthetic_networks(n_relevant=20, n_irrelevant=5, random_seed=1)
    >>> {name: network.shape for name, network in data.networks.items()}
    {'a': (25, 25), 'b': (25, 25)}
    """
    kinds = ("noisy-dirichlet", "noisy-partial", "dirichlet")
    if kind not in kinds:
        raise ValueError(f"kind: expected one of {kinds}; found {kind!r}")
    partial = kind == "noisy-partial"
    check_counts(n_relevant=n_relevant, n_networks=n_networks)
    check_count("n_irrelevant", n_irrelevant, 0)
    check_count("n_clusters", n_clusters, 2 if partial else 1)
    if n_networks > len(ascii_lowercase):
        raise ValueError(f"n_networks: expected at most {len(ascii_lowercase)}; found {n_networks}")
    if n_types not in (1, 2):
        raise ValueError(f"n_types: expected 1 or 2, for matrices; found {n_types}")
    if partial and n_relevant % n_clusters:
        raise ValueError(
            f"n_relevant: expected a multiple of the {n_clusters} clusters, which are equally "
            f"large; found {n_relevant}"
        )

    rng = np.random.default_rng(random_seed)
    density = rng.beta(0.5, 0.5, size=(n_clusters, n_clusters))
    noise = float(rng.beta(0.5, 0.5))
    # One more row and column for irrelevant objects: label -1 finds them at the end.
    probability = np.full((n_clusters + 1, n_clusters + 1), noise)
    probability[:-1, :-1] = density
    irrelevant = np.full(0 if kind == "dirichlet" else n_irrelevant, -1)
    networks, clusters = {}, {}
    for place, name in enumerate(ascii_lowercase[:n_networks]):
        labels = []
        for _ in range(n_types):
            if partial:
                present = np.delete(np.arange(n_clusters), (place - 1) % n_clusters)
                relevant = np.repeat(present, n_relevant // n_clusters)
            else:
                proportions = rng.dirichlet(np.ones(n_clusters))
                relevant = rng.choice(n_clusters, size=n_relevant, p=proportions)
            labels.append(rng.permutation(np.concatenate([relevant, irrelevant])))
        edge = probability[labels[0]][:, labels[-1]]
        edge = rng.random(edge.shape) < edge
        if n_types == 1:
            np.fill_diagonal(edge, False)
        networks[name] = sparse.csr_array(edge.astype(np.int64))
        clusters[name] = tuple(labels)
    types = ("row", "column") if n_types == 2 else ("node",)
    return SyntheticNetworks(networks, types, clusters, density, noise)


def load_newsgroups_halves(
    folder: str | Path, seed: int | np.random.Generator | None = 0, *, n_per_category: int = 250
) -> LabelledNetworks:
    """Load two disjoint halves of 20 Newsgroups, documents by the same 100 words.

    As Iwata & Ishiguro (2017), section 6.2: so many documents of each of the four categories in
    each half, and no document in both. Documents and words are shuffled in each half, so that
    neither their order nor their number tells anything.

    Parameters
    ----------
    folder : str or Path
        Holds ``20news_w100.npz`` with Sam Roweis' binary words of 20 Newsgroups: ``X_data``,
        ``X_indices``, ``X_indptr`` and ``X_shape`` (a CSR matrix of documents by words), ``words``,
        ``y`` (a number for each document's category) and ``label_names`` (in the order of y).
    seed : int, Generator or None
        Which documents are drawn, and in which order.
    n_per_category : int
        Number of documents of each category in each half.

    Returns
    -------
    LabelledNetworks
        ``"a"`` and ``"b"``, of types document and word. A document's name is its row in the file.

    Raises
    ------
    FileNotFoundError
        If the folder has no such file.
    ValueError
        If the file lacks an array, or there are too few documents.

    Examples
    --------
    >>> data = pmm.datasets.load_newsgroups_halves("data")  # doctest: +SKIP
    """
    file = read_arrays(folder, "20news_w100.npz", ["y", "words", "label_names"], ["X"])
    rng = np.random.default_rng(seed)
    labels = np.unique(file["y"], return_inverse=True)[1].reshape(-1)
    halves = dict(zip("ab", _disjoint(labels, 2, n_per_category, "documents", rng), strict=True))
    columns = {name: rng.permutation(len(file["words"])) for name in halves}
    return LabelledNetworks(
        networks={
            name: _binary(file["X"][rows][:, columns[name]]) for name, rows in halves.items()
        },
        types=("document", "word"),
        labels={name: labels[rows] for name, rows in halves.items()},
        label_names=tuple(map(str, file["label_names"])),
        objects={name: (rows, file["words"][columns[name]]) for name, rows in halves.items()},
    )


def load_movielens_networks(
    folder: str | Path, seed: int | np.random.Generator | None = 0, *, min_ratings: int = 50
) -> LabelledNetworks:
    """Load MovieLens (latest, small) as two networks of films by users that share neither.

    As Iwata & Ishiguro (2017), section 6.2, did with another collection: a film and a user are
    linked if the user has rated the film; users with few ratings are left out; films and users are
    split in two at random. Films that none of the users in their half has rated are left out too.

    A film has several genres; its label is the rarest of them (in the whole collection), which says
    most about it. Films without a genre are left out, and IMAX, a format, is none.

    Parameters
    ----------
    folder : str or Path
        Holds ``movielens_latest_small.npz``: ``half_stars_data``, ``half_stars_indices``,
        ``half_stars_indptr`` and ``half_stars_shape`` (a CSR matrix of films by users), ``genres``
        (films by genres, 0 or 1), ``genre_names`` and ``titles``.
    seed : int, Generator or None
        How films and users are split, and in which order they come.
    min_ratings : int
        Users with fewer ratings are left out.

    Returns
    -------
    LabelledNetworks
        ``"a"`` and ``"b"``, of types film and user. A user's name is the column in the file.

    Raises
    ------
    FileNotFoundError
        If the folder has no such file.
    ValueError
        If the file lacks an array, or no two users have so many ratings.

    Examples
    --------
    >>> data = pmm.datasets.load_movielens_networks("data")  # doctest: +SKIP
    """
    arrays = ["genres", "genre_names", "titles"]
    file = read_arrays(folder, "movielens_latest_small.npz", arrays, ["half_stars"])
    rated = _binary(file["half_stars"])
    genres = np.where(
        np.isin(file["genre_names"], ["(no genres listed)", "IMAX"]), 0, file["genres"]
    ).astype(np.int64)
    known = np.flatnonzero(genres.any(axis=1))
    users = np.flatnonzero(rated.sum(axis=0) >= min_ratings)
    if len(users) < 2:
        raise ValueError(
            f"min_ratings: expected at least two users with {min_ratings} ratings; "
            f"found {len(users)}"
        )
    of_film = np.where(genres > 0, genres.sum(axis=0), len(genres) + 1).argmin(axis=1)
    used = np.unique(of_film[known])

    rng = np.random.default_rng(seed)
    films_of, users_of = (np.array_split(rng.permutation(part), 2) for part in (known, users))
    networks, labels, objects = {}, {}, {}
    for name, rows, columns in zip("ab", films_of, users_of, strict=True):
        rows = rows[rated[rows][:, columns].sum(axis=1) > 0]
        networks[name] = _binary(rated[rows][:, columns])
        labels[name] = np.searchsorted(used, of_film[rows])
        objects[name] = (file["titles"][rows], columns)
    names = tuple(map(str, file["genre_names"][used]))
    return LabelledNetworks(networks, ("film", "user"), labels, names, objects)


def load_help_networks(
    folder: str | Path,
    languages: Sequence[str] = ("en", "de"),
    seed: int | np.random.Generator | None = 0,
    *,
    n_per_category: int = 30,
    n_words: int = 1000,
) -> LabelledNetworks:
    """Load LibreOffice's help as networks of pages by words, each in another language.

    Of the size of the multilingual data of Iwata & Ishiguro (2017), section 6.2: 150 pages of five
    categories and 1000 words a language. No page is in two languages, not even as a translation.
    The words are those in most of the language's pages here, stop-words left out.

    Parameters
    ----------
    folder : str or Path
        Holds ``libreoffice_help_multilingual.npz``: for each language ``X_en_data``,
        ``X_en_indices``, ``X_en_indptr`` and ``X_en_shape`` (a CSR matrix of pages by words
        without stop-words, the same page in the same row in all languages) and ``words_en``; ``y``
        (the pages' categories, as places in ``label_names``) and ``doc`` (their names). If there
        is ``en_translated``, only the pages where it is true are in that language.
    languages : sequence of str
        Such as ``("en", "de", "it")``: a network each.
    seed : int, Generator or None
        Which pages are drawn, and in which order pages and words come.
    n_per_category : int
        Number of pages of each category in each language.
    n_words : int
        Number of words in each language.

    Returns
    -------
    LabelledNetworks
        Named by language, of types page and word.

    Raises
    ------
    FileNotFoundError
        If the folder has no such file.
    ValueError
        If a language is not there or twice, the file lacks an array, or there are too few pages or
        words.

    Examples
    --------
    >>> data = pmm.datasets.load_help_networks("data", languages=("en", "de"))  # doctest: +SKIP
    """
    languages = [languages] if isinstance(languages, str) else list(languages)
    if len(set(languages)) < len(languages) or not languages:
        raise ValueError(f"languages: expected different ones, at least one; found {languages}")
    file = read_arrays(
        folder,
        "libreoffice_help_multilingual.npz",
        ["y", "doc", "label_names", *(f"words_{language}" for language in languages)],
        [f"X_{language}" for language in languages],
    )
    rng = np.random.default_rng(seed)
    labels = file["y"].astype(np.int64)
    allowed = [
        file.get(f"{language}_translated", np.ones(len(labels), dtype=bool))
        for language in languages
    ]
    pages = _disjoint(labels, len(languages), n_per_category, "pages", rng, allowed)
    networks, objects = {}, {}
    for language, rows in zip(languages, pages, strict=True):
        present = _binary(file[f"X_{language}"][rows])
        n_pages = present.sum(axis=0)
        if np.count_nonzero(n_pages) < n_words:
            raise ValueError(
                f"n_words: expected at most the {np.count_nonzero(n_pages)} words of the "
                f"{len(rows)} pages in {language!r}; found {n_words}"
            )
        columns = rng.permutation(np.argsort(-n_pages, kind="stable")[:n_words])
        networks[language] = _binary(present[:, columns])
        objects[language] = (file["doc"][rows], file[f"words_{language}"][columns])
    return LabelledNetworks(
        networks=networks,
        types=("page", "word"),
        labels={name: labels[rows] for name, rows in zip(languages, pages, strict=True)},
        label_names=tuple(map(str, file["label_names"])),
        objects=objects,
    )


def _binary(matrix: sparse.csr_array) -> sparse.csr_array:
    """Make a matrix of 0 and 1, in canonical format."""
    result = sparse.csr_array(matrix != 0, dtype=np.int64)
    result.sort_indices()
    return result


def _disjoint(
    labels: np.ndarray,
    n_parts: int,
    n_each: int,
    what: str,
    rng: np.random.Generator,
    allowed: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Draw disjoint parts with `n_each` objects of every label, in random order.

    `allowed` says for each part which objects may be in it; the choosiest part draws first.
    """
    check_count("n_per_category", n_each)
    masks = allowed or [np.ones(len(labels), dtype=bool)] * n_parts
    free = np.ones(len(labels), dtype=bool)
    parts: dict[int, np.ndarray] = {}
    for part in sorted(range(n_parts), key=lambda part: int(masks[part].sum())):
        chosen = []
        for label in np.unique(labels):
            pool = np.flatnonzero(free & masks[part] & (labels == label))
            if len(pool) < n_each:
                raise ValueError(
                    f"n_per_category: expected no more {what} than {n_parts} networks can have of "
                    f"every category; found {n_each}, and {len(pool)} left in category {label}"
                )
            chosen.append(rng.choice(pool, n_each, replace=False))
        parts[part] = rng.permutation(np.concatenate(chosen))
        free[parts[part]] = False
    return [parts[part] for part in range(n_parts)]

"""Make the figures of docs/gallery.md, by running its blocks of code.

Run ``python docs/figures/make_gallery.py``, from anywhere. Each picture of the page is the variable
``figure`` as the block before it leaves it.
"""

import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import pm_match as pmm

PAGE = Path(__file__).parents[1] / "gallery.md"
_BLOCK_OR_PICTURE = re.compile(r"```python\n(.*?)```|!\[.*?\]\((.*?)\)", re.DOTALL)


def main() -> None:
    """Run the page from top to bottom, and save its figures where it shows them from."""
    mpl.use("Agg")
    names = {"np": np, "pmm": pmm}
    for code, picture in _BLOCK_OR_PICTURE.findall(PAGE.read_text()):
        if code:
            exec(compile(code, PAGE, "exec"), names)
        else:
            names["figure"].savefig(PAGE.parent / picture, dpi=100)
            plt.close(names["figure"])
            print(picture, flush=True)


if __name__ == "__main__":
    main()

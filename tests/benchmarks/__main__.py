"""``make bench``: run every benchmark in this folder and print its table in Markdown."""

import importlib
import os
import pkgutil
import platform
from pathlib import Path

import torch

if __name__ == "__main__":
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, {threads} threads\n")
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name != "__main__":
            benchmark = importlib.import_module(f"tests.benchmarks.{module.name}")
            print(f"## {(benchmark.__doc__ or module.name).splitlines()[0]}\n")
            benchmark.main()
            print()

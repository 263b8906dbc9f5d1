"""Doctests of what imports Keras are left out where there is none. (`keras` alone would also be found as the folder
of tests of that name.)"""
import importlib.util


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


collect_ignore_glob = [] if _has("keras.layers") else ["megalith/capture/keras/*"]

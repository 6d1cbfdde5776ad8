"""Read by every Python of an attached program when it starts.

It imports nothing but what ``site`` has imported already. It waits for torch's loader (or for the module of
``--loader-hook``) to be imported, and only a process that does so gets hooks. Then it reads the program's own
``sitecustomize``, if there is one.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# No annotations: older Pythons than coresim's read this too, and say so.
import os
import sys

FOLDER = "CORESIM_ATTACH"
LOADER = "torch.utils.data.dataloader"
HERE = os.path.dirname(os.path.abspath(__file__))


class Finder:
    """Lets the usual finders find a module, and hooks it right after it has run."""

    def __init__(self, folder, names):
        self.folder, self.names = folder, names

    def find_spec(self, name, path=None, target=None):
        """None for all modules but those that are waited for."""
        if name not in self.names:
            return None
        self.names.discard(name)
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self._hook(spec.loader)
                return spec
        return None

    def _hook(self, loader):
        run = loader.exec_module

        def exec_module(module):
            run(module)
            guarded(hooked, self.folder, module)

        loader.exec_module = exec_module


def hooked(folder, module):
    """Hook a module that was just imported."""
    import importlib  # noqa: PLC0415
    import importlib.util  # noqa: PLC0415

    if sys.hexversion < 0x030B0000:
        raise RuntimeError(f"the program runs on Python {sys.version.split()[0]}, and coresim's hooks need 3.11")
    if "coresim" not in sys.modules:
        # By its place: the program's own environment need not have coresim, and must not get what is beside it.
        package = os.path.dirname(os.path.dirname(HERE))
        spec = importlib.util.spec_from_file_location(
            "coresim", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )
        assert spec is not None and spec.loader is not None
        sys.modules["coresim"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["coresim"])
    importlib.import_module("coresim.attaching.hooks").install(folder, module)


def guarded(work, folder, *args):
    """Do it; what goes wrong is told to coresim and not to the program."""
    try:
        work(folder, *args)
    except Exception as error:
        note(folder, "failed", f"{type(error).__name__}: {error}")


def note(folder, kind, text):
    """Leave a note in the session's folder."""
    try:
        handle = os.open(os.path.join(folder, f"{kind}.{os.getpid()}"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(handle, text.encode())
        os.close(handle)
    except OSError:
        pass  # the session is over


def wait_for_loader(folder):
    """Be told when the loader's module is imported."""
    module = os.environ.get(FOLDER + "_MODULE")
    sys.meta_path.insert(0, Finder(folder, {LOADER, module} if module else {LOADER}))
    note(folder, "python", " ".join(getattr(sys, "orig_argv", [])))


def chain():
    """Read the program's own ``sitecustomize`` in place of this one."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


if __name__ == "sitecustomize" and "sitecustomize" in sys.modules:
    if os.environ.get(FOLDER):
        guarded(wait_for_loader, os.environ[FOLDER])
    chain()

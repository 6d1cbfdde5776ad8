"""The program's own: it must be read, and it must be what ``import sitecustomize`` gives."""

import builtins

builtins.SITE_WAS_READ = True

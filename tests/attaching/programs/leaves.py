"""Crashes at its third step, and leaves a process that never ends, as a compiler's workers are."""

import subprocess
import sys

from crash import main

if __name__ == "__main__":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "left-by-leaves"], start_new_session=True)
    main()

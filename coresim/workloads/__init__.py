"""Jobs whose samples can be prepared and timed, by name in `coresim.workloads.registry`, and how to add one.

Your own takes twenty lines and no registration. As ``spectra.py`` in the current folder::

    import numpy as np
    from coresim.workloads.folder import FolderWorkload


    class Spectra(FolderWorkload):
        name = "spectra from CSV"
        batch_size = 128
        patterns = ("*.csv",)

        def write(self):
            rng = np.random.default_rng(0)
            for index in range(self.count):
                np.savetxt(self.folder / f"{index}.csv", rng.random((200, 2)), delimiter=",")

        def decode(self, raw):
            return np.array([line.split(b",") for line in raw.splitlines()], dtype=np.float32)

        def transform(self, x, rng):
            return x[:, 1] + 0.01 * rng.standard_normal(len(x), dtype=np.float32)

then ``coresim recommend --dataset spectra:Spectra``. Work that is not one file per sample begins from
`coresim.workloads.base.Workload`; a dataset that exists already needs no class at all.
"""

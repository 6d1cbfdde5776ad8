# Where the kernel's records and lists come from in C; in Python it is memory.py, which says what each function gives.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


cdef enum:
    BLOCK = 65536  # bytes got from Python at once, so that what a rank needs lies together
    ALIGN = 16  # bytes


cdef class Arena:
    """The memory of one run: bytearrays, which begin with zeros and go with this object."""

    cdef readonly object number
    cdef readonly size_t size  # bytes
    cdef list kept
    cdef char* next
    cdef size_t left

    def __init__(self, number=np.float64):
        self.number = np.float64
        self.kept = []

    cdef void* take(self, size_t size):
        size = (size + ALIGN - 1) // ALIGN * ALIGN
        if size > self.left:
            block = bytearray(max(size, <size_t> BLOCK) + ALIGN)
            self.kept.append(block)
            self.next = block
            self.next += ALIGN - <size_t> self.next % ALIGN
            self.left = max(size, <size_t> BLOCK)
        taken = self.next
        self.next += size
        self.left -= size
        self.size += size
        return taken

    cdef void** rows(self, size_t count, size_t size):
        """Pointers to so many pieces of one block."""
        cdef void** pointers = <void**> self.take(count * sizeof(void*))
        cdef char* block = <char*> self.take(count * size)
        cdef size_t row
        for row in range(count):
            pointers[row] = block + row * size
        return pointers

    cdef Job* job(self):
        return <Job*> self.take(sizeof(Job))

    cdef Host** hosts(self, size_t count):
        return <Host**> self.rows(count, sizeof(Host))

    cdef Clock** clocks(self, size_t count):
        return <Clock**> self.rows(count, sizeof(Clock))

    cdef Rank** ranks(self, size_t count):
        return <Rank**> self.rows(count, sizeof(Rank))

    cdef StageRecord** stages(self, size_t count):
        return <StageRecord**> self.rows(count, sizeof(StageRecord))

    cdef PhaseRecord** phases(self, size_t count):
        return <PhaseRecord**> self.rows(count, sizeof(PhaseRecord))

    cdef Actor** actors(self, size_t count):
        return <Actor**> self.rows(count, sizeof(Actor))

    cdef Item** items(self, size_t count):
        return <Item**> self.rows(count, sizeof(Item))

    cdef Rank** no_ranks(self, size_t count):
        return <Rank**> self.take(count * sizeof(void*))

    cdef PhaseRecord** no_phases(self, size_t count):
        return <PhaseRecord**> self.take(count * sizeof(void*))

    cdef Actor** no_actors(self, size_t count):
        return <Actor**> self.take(count * sizeof(void*))

    cdef Item** no_items(self, size_t count):
        return <Item**> self.take(count * sizeof(void*))

    cdef double* numbers(self, size_t count, double value=0):
        cdef double* given = <double*> self.take(count * sizeof(double))
        cdef size_t place
        if value != 0:
            for place in range(count):
                given[place] = value
        return given

    cdef long* counts(self, size_t count, long value=0):
        cdef long* given = <long*> self.take(count * sizeof(long))
        cdef size_t place
        if value != 0:
            for place in range(count):
                given[place] = value
        return given

    cdef double** tables(self, size_t rows, size_t columns):
        return <double**> self.rows(rows, columns * sizeof(double))

    cdef double* values(self, object array):
        numbers = np.ascontiguousarray(array, np.float64)
        self.kept.append(numbers)
        cdef Py_buffer view
        PyObject_GetBuffer(numbers, &view, PyBUF_SIMPLE)
        PyBuffer_Release(&view)  # the array keeps its place
        return <double*> view.buf

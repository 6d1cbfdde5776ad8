/* The plain overlapped loader as a bare recurrence: as many cores as workers, round robin, in order, one accelerator.
 *
 * Batch i belongs to worker i mod W, is dispatched when batch i - credits is picked up, passes its phases, and is picked
 * up when it and the trainer are ready; the trainer then consumes, copies (waiting for the accelerator) and launches, and
 * is ready again when the accelerator has finished step i - run_ahead.
 * It knows no shared cores, no storage, no second stage, no ranks, no window and no account of where time goes.
 *
 * All tapes have `rows` rows: first the phases, then consumer, copy, launch and step.
 */

#include <stdlib.h>

static double later(double a, double b) { return a > b ? a : b; }

double line(long steps, long workers, long credits, long run_ahead, long phases, long rows, const double *const *tapes)
{
    const double *consumer = tapes[phases], *copy = tapes[phases + 1];
    const double *launch = tapes[phases + 2], *step = tapes[phases + 3];
    double *finished = calloc(workers, sizeof *finished), *picked = calloc(credits, sizeof *picked);
    double *ends = calloc(run_ahead + 1, sizeof *ends);
    double ready = 0.0, end = 0.0;
    long worker = 0, credit = 0, last = 0, row = 0;
    for (long i = 0; i < steps; i++) {
        double done = later(finished[worker], picked[credit]);
        double pick, copied, launched;
        for (long phase = 0; phase < phases; phase++) done += tapes[phase][row];
        finished[worker] = done;
        picked[credit] = pick = later(ready, done);
        copied = later(pick + consumer[row], end) + copy[row];
        launched = copied + launch[row];
        ends[last] = end = later(later(copied, end) + step[row], launched);
        if (++last > run_ahead) last = 0;
        ready = later(launched, ends[last]);
        if (++worker == workers) worker = 0;
        if (++credit == credits) credit = 0;
        if (++row == rows) row = 0;
    }
    free(finished);
    free(picked);
    free(ends);
    return end;
}

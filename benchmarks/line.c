/* The plain overlapped loader as a recurrence: as many cores as workers, round robin, in order, one accelerator.
 *
 * Batch i belongs to worker i mod W, is dispatched when batch i - credits is picked up, and is picked up when it is
 * ready and the accelerator is free:
 *     f[i]    = max(f[i - W], pick[i - credits]) + S[i]
 *     pick[i] = max(free, f[i]),  free = pick[i] + step
 * It knows no shared cores, no storage, no second stage, no ranks and no account of where time goes.
 */

#include <stdlib.h>

static double later(double a, double b) { return a > b ? a : b; }

double line(long steps, long workers, long credits, long rows, const double *service, double step)
{
    double *finished = calloc(workers, sizeof *finished), *picked = calloc(credits, sizeof *picked);
    double free_at = 0.0;
    long worker = 0, credit = 0, row = 0;
    for (long i = 0; i < steps; i++) {
        double pick;
        finished[worker] = later(finished[worker], picked[credit]) + service[row];
        pick = later(free_at, finished[worker]);
        picked[credit] = pick;
        free_at = pick + step;
        if (++worker == workers) worker = 0;
        if (++credit == credits) credit = 0;
        if (++row == rows) row = 0;
    }
    free(finished);
    free(picked);
    return free_at;
}

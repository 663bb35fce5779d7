/* SGD, gradients and Hessian products of the mean angle of gaze networks; faze.fewshot.mlp does the same with autograd.
 *
 * A network maps code (F) -> hidden (H), SELU or ReLU -> vector (3) of any length. Its H (F + 4) + 3 parameters are a
 * row of faze.fewshot.mlp.pack: hidden_weight (F, H), hidden_bias (H), output_weight (3, H), output_bias (3). The
 * parameters and the gradient (5 kB) stay in a core's L1 cache during all steps. Compilers vectorise loops over h.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define DEGREES 57.29577951308232f
#define SCALE 1.0507009873554805f
#define ALPHA 1.6732632423543772f
#define INLINED static inline __attribute__((always_inline)) /* so that constant arguments are propagated */
#define EACH_UNIT for (int64_t h = 0; h < s.H; h++)
#define EACH_INPUT _Pragma("GCC unroll 8") for (int64_t f = 0; f < s.F; f++)
#define EACH_AXIS for (int j = 0; j < 3; j++)
#define BIAS (s.F * s.H) /* where the parts of a network begin */
#define OUTPUT (BIAS + s.H)
#define OUTPUT_BIAS (OUTPUT + 3 * s.H)
#define PARAMETERS (OUTPUT_BIAS + 3)

typedef struct { int64_t F, H, relu; } sizes;
typedef struct {
    const float *code, *gaze; /* (M, n, F) and (M, n, 3), unit vectors */
    const int64_t *count; /* (M): only the first count[m] samples of network m are read */
    int64_t M, n;
    sizes size;
} samples;

/* Comparisons are written so that NaN propagates, because divergence of a network must be noticed. */
INLINED float exp_of_negative(float x)
{
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f), r = x - n * 0.693145752f - n * 1.42860677e-6f; /* |r| <= ln(2) / 2 */
    float series = 1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r *
        0.00138888889f)))));
    union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
    return series * power.value;
}

INLINED float selu(float a) { return a > 0 ? SCALE * a : SCALE * ALPHA * (exp_of_negative(a > 0 ? 0 : a) - 1); }

/* Return the first and the second derivative of the activation, given its value. */
INLINED float slope(sizes s, float z) { return s.relu ? z > 0 : z > 0 ? SCALE : z + SCALE * ALPHA; }
INLINED float bend(sizes s, float z) { return s.relu || z > 0 ? 0 : z + SCALE * ALPHA; }

INLINED float dot(const float *a, const float *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/* Return the angle in degrees between u, of any length, and g. */
static float angle(const float *u, const float *g)
{
    float cross[3] = {u[1] * g[2] - u[2] * g[1], u[2] * g[0] - u[0] * g[2], u[0] * g[1] - u[1] * g[0]};
    return DEGREES * atan2f(sqrtf(dot(cross, cross)), dot(u, g));
}

/* Compute p, the derivative of the angle with respect to u, and p_moves, the change of p as u changes by u_moves. p
 * points away from g along the sphere; its length is proportional to 1 / |u|. If u is parallel to g, p is 0. */
INLINED void angle_derivatives(const float *u, const float *g, const float *u_moves, float *p, float *p_moves)
{
    float q = dot(u, u), along = dot(u, g) / q, q_moves = 2 * dot(u, u_moves), away[3], away_moves[3];
    float along_moves = dot(u_moves, g) / q - along * q_moves / q;
    EACH_AXIS {
        away[j] = along * u[j] - g[j];
        away_moves[j] = along_moves * u[j] + along * u_moves[j];
    }
    float squared = dot(away, away) * q, squared_moves = 2 * dot(away, away_moves) * q + dot(away, away) * q_moves;
    float factor = squared == 0 ? 0 : DEGREES / sqrtf(squared);
    float factor_moves = squared == 0 ? 0 : -0.5f * factor * squared_moves / squared;
    EACH_AXIS {
        p[j] = factor * away[j];
        p_moves[j] = factor_moves * away[j] + factor * away_moves[j];
    }
}

/* Compute the inputs of hidden units, a (H). */
INLINED void hidden_inputs(sizes s, const float *restrict w, const float *restrict x, float *restrict a)
{
    EACH_UNIT {
        float sum = w[BIAS + h];
        EACH_INPUT sum += x[f] * w[f * s.H + h];
        a[h] = sum;
    }
}

/* Add `share` times a sample's gradient to `sum`; if `second`, add `share` times its Hessian times v instead, by
 * Pearlmutter's R operator: NAME_moves is the change of NAME along v. */
INLINED void add_sample(sizes s, int second, const float *restrict w, const float *restrict v, const float *restrict x,
    const float *g, float share, float *restrict sum, float *u)
{
    float z[s.H], a_moves[s.H], d[s.H], u_moves[3] = {0}, p[3], p_moves[3];
    const float *restrict out = w + OUTPUT, *restrict out_moves = v + OUTPUT;
    float *restrict out_sum = sum + OUTPUT, vector[3] = {0};
    hidden_inputs(s, w, x, z);
    EACH_UNIT z[h] = s.relu ? (z[h] < 0 ? 0 : z[h]) : selu(z[h]);
    EACH_UNIT
        EACH_AXIS vector[j] += z[h] * out[j * s.H + h];
    EACH_AXIS u[j] = vector[j] + w[OUTPUT_BIAS + j];
    if (second) {
        hidden_inputs(s, v, x, a_moves);
        EACH_UNIT
            EACH_AXIS u_moves[j] += slope(s, z[h]) * a_moves[h] * out[j * s.H + h] + z[h] * out_moves[j * s.H + h];
        EACH_AXIS u_moves[j] += v[OUTPUT_BIAS + j];
    }
    angle_derivatives(u, g, u_moves, p, p_moves);
    EACH_AXIS p[j] *= share, p_moves[j] *= share;
    EACH_UNIT {
        float e = 0, e_moves = 0;
        EACH_AXIS {
            e += p[j] * out[j * s.H + h];
            if (second) e_moves += p_moves[j] * out[j * s.H + h] + p[j] * out_moves[j * s.H + h];
            out_sum[j * s.H + h] += second ? slope(s, z[h]) * a_moves[h] * p[j] + z[h] * p_moves[j] : z[h] * p[j];
        }
        d[h] = second ? bend(s, z[h]) * a_moves[h] * e + slope(s, z[h]) * e_moves : slope(s, z[h]) * e;
    }
    EACH_INPUT EACH_UNIT sum[f * s.H + h] += x[f] * d[h];
    EACH_UNIT sum[BIAS + h] += d[h];
    EACH_AXIS sum[OUTPUT_BIAS + j] += second ? p_moves[j] : p[j];
}

/* Add the derivative of network m's mean angle, as in add_sample, and the mean angle itself in degrees. */
INLINED void add_network(int second, const samples *b, int64_t m, const float *w, const float *v, float *sum,
    float *degrees)
{
    const sizes s = b->size, usual = {6, s.H, s.relu}; /* loops over a constant F are unrolled */
    const float share = 1.0f / b->count[m], *x = b->code + m * b->n * s.F, *g = b->gaze + m * b->n * 3;
    for (const float *end = g + b->count[m] * 3; g < end; x += s.F, g += 3) {
        float u[3];
        if (s.F == usual.F)
            add_sample(usual, second, w, v, x, g, share, sum, u);
        else
            add_sample(s, second, w, v, x, g, share, sum, u);
        if (degrees) degrees[m] += share * angle(u, g);
    }
}

/* Move each network by `steps` full-batch steps of SGD. */
void sgd(const samples *b, float *networks, float rate, int64_t steps)
{
    const sizes s = b->size;
    float sum[PARAMETERS];
    for (int64_t m = 0; m < b->M; m++) {
        float *restrict w = networks + m * PARAMETERS;
        for (int64_t step = 0; step < steps; step++) {
            memset(sum, 0, sizeof sum);
            add_network(0, b, m, w, w, sum, NULL);
            for (int64_t i = 0; i < PARAMETERS; i++) w[i] -= rate * sum[i];
        }
    }
}

/* Add each network's mean angle in degrees, and its gradient or, given directions, its Hessian times the direction. */
void gradient(const samples *b, const float *networks, const float *directions, float *out, float *degrees)
{
    const sizes s = b->size;
    for (int64_t m = 0, at = 0; m < b->M; m++, at += PARAMETERS)
        if (directions)
            add_network(1, b, m, networks + at, directions + at, out + at, degrees);
        else
            add_network(0, b, m, networks + at, networks + at, out + at, degrees);
}

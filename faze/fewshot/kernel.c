/* Few-shot gaze networks on a CPU: SGD, gradient and Hessian product of the mean angle, network by network.
 *
 * A network: code (F) -> hidden (H), SELU or ReLU -> vector (3), of any length. Its H (F + 4) + 3 parameters are a row
 * of faze.fewshot.mlp.Weights.pack: hidden_weight (F, H), hidden_bias (H), output_weight (3, H), output_bias (3).
 * Parameters and gradient, 5 kB, stay in a core's first-level cache through all steps. Compilers turn each loop over h
 * into vectors. faze.fewshot.kernel computes the same by autograd.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define DEGREES 57.29577951308232f
#define SCALE 1.0507009873554805f
#define ALPHA 1.6732632423543772f
#define INLINED static inline __attribute__((always_inline)) /* F is a constant where it has the default value */
#define EACH_UNIT for (int64_t h = 0; h < s.H; h++)
#define EACH_INPUT _Pragma("GCC unroll 8") for (int64_t f = 0; f < s.F; f++)
#define EACH_AXIS for (int j = 0; j < 3; j++)
#define BIAS (s.F * s.H) /* where parts of a network begin */
#define OUTPUT (BIAS + s.H)
#define OUTPUT_BIAS (OUTPUT + 3 * s.H)
#define PARAMETERS (OUTPUT_BIAS + 3)

typedef struct { int64_t F, H, relu; } sizes;
typedef struct {
    const float *code, *gaze; /* (N, F) and (N, 3), unit vectors */
    const int64_t *rows, *count; /* network m sees the first count[m] of the samples rows[m], of (M, n) */
    int64_t M, n;
    sizes size;
} samples;

/* Comparisons are such that NaN passes through everything here: a network that diverges must be noticed. */
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

/* Return the first and the second derivative of the activation, from its value. */
INLINED float slope(sizes s, float z) { return s.relu ? z > 0 : z > 0 ? SCALE : z + SCALE * ALPHA; }
INLINED float bend(sizes s, float z) { return s.relu || z > 0 ? 0 : z + SCALE * ALPHA; }

INLINED float dot(const float *a, const float *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/* Compute the inputs of hidden units, a (H). */
INLINED void hidden_inputs(sizes s, const float *restrict w, const float *restrict x, float *restrict a)
{
    EACH_UNIT {
        float sum = w[BIAS + h];
        EACH_INPUT sum += x[f] * w[f * s.H + h];
        a[h] = sum;
    }
}

/* Compute the values of hidden units, z (H), and the vector u (3). */
INLINED void forward(sizes s, const float *restrict w, const float *restrict x, float *restrict z, float *u)
{
    hidden_inputs(s, w, x, z);
    if (s.relu)
        EACH_UNIT z[h] = z[h] < 0 ? 0 : z[h];
    else
        EACH_UNIT z[h] = selu(z[h]);
    float sum[3] = {0};
    EACH_UNIT
        EACH_AXIS sum[j] += z[h] * w[OUTPUT + j * s.H + h];
    EACH_AXIS u[j] = sum[j] + w[OUTPUT_BIAS + j];
}

/* Return the angle in degrees between u, of any length, and g. */
static float angle(const float *u, const float *g)
{
    float cross[3] = {u[1] * g[2] - u[2] * g[1], u[2] * g[0] - u[0] * g[2], u[0] * g[1] - u[1] * g[0]};
    return DEGREES * atan2f(sqrtf(dot(cross, cross)), dot(u, g));
}

/* Compute the derivative p of the angle by u: away from g along the sphere, over the length of u; 0 if both coincide.
 * Compute in p_moves its change as u moves by u_moves. */
INLINED void angle_derivatives(const float *u, const float *g, const float *u_moves, float share, float *p,
    float *p_moves)
{
    float q = dot(u, u), along = dot(u, g) / q, q_moves = 2 * dot(u, u_moves), away[3], away_moves[3];
    float along_moves = dot(u_moves, g) / q - along * q_moves / q;
    EACH_AXIS {
        away[j] = along * u[j] - g[j];
        away_moves[j] = along_moves * u[j] + along * u_moves[j];
    }
    float squared = dot(away, away) * q, squared_moves = 2 * dot(away, away_moves) * q + dot(away, away) * q_moves;
    float factor = squared == 0 ? 0 : share * DEGREES / sqrtf(squared);
    float factor_moves = squared == 0 ? 0 : -0.5f * factor * squared_moves / squared;
    EACH_AXIS {
        p[j] = factor * away[j];
        p_moves[j] = factor_moves * away[j] + factor * away_moves[j];
    }
}

/* Add the gradient of the first layer, given that of hidden inputs, d (H). */
INLINED void add_hidden(sizes s, const float *restrict x, const float *restrict d, float *restrict sum)
{
    EACH_INPUT EACH_UNIT sum[f * s.H + h] += x[f] * d[h];
    EACH_UNIT sum[BIAS + h] += d[h];
}

/* Add a sample's part of the gradient; return its part of the mean angle, if wanted. */
INLINED float add_gradient(sizes s, const float *restrict w, const float *restrict x, const float *g, float share,
    int with_angle, float *restrict sum)
{
    float z[s.H], d[s.H], u[3], p[3], unused[3];
    const float still[3] = {0}, *restrict out = w + OUTPUT;
    float *restrict out_sum = sum + OUTPUT;
    forward(s, w, x, z, u);
    angle_derivatives(u, g, still, share, p, unused);
    EACH_UNIT {
        d[h] = slope(s, z[h]) * (p[0] * out[h] + p[1] * out[s.H + h] + p[2] * out[2 * s.H + h]);
        EACH_AXIS out_sum[j * s.H + h] += p[j] * z[h];
    }
    add_hidden(s, x, d, sum);
    EACH_AXIS sum[OUTPUT_BIAS + j] += p[j];
    return with_angle ? share * angle(u, g) : 0;
}

/* Add a sample's part of the product of the Hessian and v, by Pearlmutter's R operator: the gradient's change along v. */
INLINED void add_hessian_product(sizes s, const float *restrict w, const float *restrict v, const float *restrict x,
    const float *g, float share, float *restrict sum)
{
    float z[s.H], a_moves[s.H], d[s.H], u[3], u_moves[3], p[3], p_moves[3];
    const float *restrict out = w + OUTPUT, *restrict out_moves = v + OUTPUT;
    float *restrict out_sum = sum + OUTPUT;
    forward(s, w, x, z, u);
    hidden_inputs(s, v, x, a_moves);
    EACH_AXIS {
        float moves = v[OUTPUT_BIAS + j];
        EACH_UNIT moves += slope(s, z[h]) * a_moves[h] * out[j * s.H + h] + z[h] * out_moves[j * s.H + h];
        u_moves[j] = moves;
    }
    angle_derivatives(u, g, u_moves, share, p, p_moves);
    EACH_UNIT {
        float e = 0, e_moves = 0, z_moves = slope(s, z[h]) * a_moves[h];
        EACH_AXIS {
            e += p[j] * out[j * s.H + h];
            e_moves += p_moves[j] * out[j * s.H + h] + p[j] * out_moves[j * s.H + h];
            out_sum[j * s.H + h] += z_moves * p[j] + z[h] * p_moves[j];
        }
        d[h] = bend(s, z[h]) * a_moves[h] * e + slope(s, z[h]) * e_moves;
    }
    add_hidden(s, x, d, sum);
    EACH_AXIS sum[OUTPUT_BIAS + j] += p_moves[j];
}

#define EACH_SAMPLE \
    const float share = 1.0f / b->count[m]; \
    for (const int64_t *row = b->rows + m * b->n, *end = row + b->count[m]; row < end; row++)
#define X (b->code + *row * s.F)
#define G (b->gaze + *row * 3)

INLINED void each_sgd(sizes s, const samples *b, float *networks, float rate, int64_t steps)
{
    float sum[PARAMETERS];
    for (int64_t m = 0; m < b->M; m++) {
        float *restrict w = networks + m * PARAMETERS;
        for (int64_t step = 0; step < steps; step++) {
            memset(sum, 0, sizeof sum);
            EACH_SAMPLE add_gradient(s, w, X, G, share, 0, sum);
            for (int64_t i = 0; i < PARAMETERS; i++) w[i] -= rate * sum[i];
        }
    }
}

INLINED void each_gradient(sizes s, const samples *b, const float *networks, float *out, float *degrees)
{
    for (int64_t m = 0, at = 0; m < b->M; m++, at += PARAMETERS) {
        EACH_SAMPLE degrees[m] += add_gradient(s, networks + at, X, G, share, 1, out + at);
    }
}

INLINED void each_hessian_product(sizes s, const samples *b, const float *networks, const float *directions, float *out)
{
    for (int64_t m = 0, at = 0; m < b->M; m++, at += PARAMETERS) {
        EACH_SAMPLE add_hessian_product(s, networks + at, directions + at, X, G, share, out + at);
    }
}

/* Call a function with the default F as a constant, or with another. */
#define WITH_SIZES(function, ...) \
    if (b->size.F == 6) \
        function((sizes){6, b->size.H, b->size.relu}, b, __VA_ARGS__); \
    else \
        function(b->size, b, __VA_ARGS__)

/* Move each network by `steps` full-batch steps of SGD. */
void sgd(const samples *b, float *networks, float rate, int64_t steps) { WITH_SIZES(each_sgd, networks, rate, steps); }

/* Add the gradient of each network's mean angle to `out`, and the angle itself, in degrees. */
void gradient(const samples *b, const float *networks, float *out, float *degrees)
{
    WITH_SIZES(each_gradient, networks, out, degrees);
}

/* Add the product of each Hessian of the mean angle and a direction to `out`. */
void hessian_product(const samples *b, const float *networks, const float *directions, float *out)
{
    WITH_SIZES(each_hessian_product, networks, directions, out);
}

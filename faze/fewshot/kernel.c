/* Few-shot gaze networks on a CPU: SGD, gradient, Hessian product and error of the mean angle, network by network.
 *
 * A network: code (F) -> hidden (H), SELU or ReLU -> vector (3), of any length. A network's parameters and gradient,
 * 5 kB, stay in a core's first-level cache through all of its steps. Rows of H numbers are padded with zeros to whole
 * vectors; padded units stay 0. faze.fewshot.kernel computes the same in torch.
 *
 * Tensors are contiguous float32, as in faze.fewshot.mlp: hidden_weight (M, F, H), hidden_bias (M, H), output_weight
 * (M, H, 3), output_bias (M, 3); code (D, n, F) and gaze (D, n, 3, unit vectors) of D sets of samples. Model m sees the
 * first count[m] samples of set row[m].
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define DEGREES 57.29577951308232f
#define SCALE 1.0507009873554805f
#define ALPHA 1.6732632423543772f

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(4 * LANES), aligned(4)));

#define INLINED static inline __attribute__((always_inline)) /* F is a constant where it has the default value */
#define EACH_INPUT _Pragma("GCC unroll 8") for (int f = 0; f < size.F; f++)
#define EACH_VECTOR for (int h = 0; h < size.P; h += LANES)
#define AT(row) (*(vector *)((row) + h))

typedef struct { int64_t F, H, relu, P; } sizes; /* P: H padded to whole vectors */
typedef struct { float *w1, *b1, *w2, *b2; } net; /* (F, P), (P), (3, P), (3): a network; its gradient */
typedef struct { float *w1, *b1, *w2, *b2; } tensors; /* of M networks */
typedef struct { const float *code, *gaze; const int64_t *row, *count; int64_t n; } samples;

/* Reserve a network on the stack: its four parts in one block. */
#define PARAMETERS (size.P * (size.F + 4) + 3)
#define NET(name) \
    float name##_block[PARAMETERS] __attribute__((aligned(64))); \
    const net name = {name##_block, name##_block + size.P * size.F, name##_block + size.P * (size.F + 1), \
                      name##_block + size.P * (size.F + 4)}; \
    memset(name##_block, 0, sizeof name##_block)

INLINED void load(sizes size, const net *to, const tensors *from, int64_t m)
{
    for (int f = 0; f < size.F; f++)
        memcpy(to->w1 + f * size.P, from->w1 + (m * size.F + f) * size.H, size.H * sizeof(float));
    memcpy(to->b1, from->b1 + m * size.H, size.H * sizeof(float));
    for (int h = 0; h < size.H; h++)
        for (int j = 0; j < 3; j++) to->w2[j * size.P + h] = from->w2[(m * size.H + h) * 3 + j];
    memcpy(to->b2, from->b2 + m * 3, 3 * sizeof(float));
}

INLINED void store(sizes size, const tensors *to, int64_t m, const net *from)
{
    for (int f = 0; f < size.F; f++)
        memcpy(to->w1 + (m * size.F + f) * size.H, from->w1 + f * size.P, size.H * sizeof(float));
    memcpy(to->b1 + m * size.H, from->b1, size.H * sizeof(float));
    for (int h = 0; h < size.H; h++)
        for (int j = 0; j < 3; j++) to->w2[(m * size.H + h) * 3 + j] = from->w2[j * size.P + h];
    memcpy(to->b2 + m * 3, from->b2, 3 * sizeof(float));
}

/* Comparisons are such that NaN passes through everything here: a network that diverges must be seen. */
static inline float exp_of_negative(float x)
{
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f), r = x - n * 0.693145752f - n * 1.42860677e-6f; /* |r| <= ln(2) / 2 */
    float series = 1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r *
        0.00138888889f)))));
    union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
    return series * power.value;
}

static inline float activate(float a)
{
    return a > 0 ? SCALE * a : SCALE * ALPHA * (exp_of_negative(a > 0 ? 0 : a) - 1);
}

INLINED vector choose(mask where, vector a, vector b) { return (vector)(((mask)a & where) | ((mask)b & ~where)); }

/* Return the first and the second derivative of the activation, from its value. */
INLINED vector slope(sizes size, vector z)
{
    const vector zero = {0};
    return size.relu ? choose(z > zero, zero + 1, zero) : choose(z > zero, zero + SCALE, z + SCALE * ALPHA);
}
INLINED vector bend(sizes size, vector z)
{
    const vector zero = {0};
    return size.relu ? zero : choose(z > zero, zero, z + SCALE * ALPHA);
}

static inline float sum_of(vector v)
{
    float sum[LANES];
    memcpy(sum, &v, sizeof v);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) sum[i] += sum[i + width];
    return sum[0];
}

INLINED void forward(sizes size, const net *w, const float *x, float *z, float *u)
{
    EACH_VECTOR {
        vector a = AT(w->b1);
        EACH_INPUT a += x[f] * AT(w->w1 + f * size.P);
        AT(z) = a;
    }
    if (size.relu)
        for (int h = 0; h < size.P; h++) z[h] = z[h] < 0 ? 0 : z[h];
    else
        for (int h = 0; h < size.P; h++) z[h] = activate(z[h]);
    vector u0 = {0}, u1 = {0}, u2 = {0};
    EACH_VECTOR {
        u0 += AT(z) * AT(w->w2);
        u1 += AT(z) * AT(w->w2 + size.P);
        u2 += AT(z) * AT(w->w2 + 2 * size.P);
    }
    u[0] = sum_of(u0) + w->b2[0], u[1] = sum_of(u1) + w->b2[1], u[2] = sum_of(u2) + w->b2[2];
}

static inline float dot(const float *a, const float *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/* Return the degrees between u, of any length, and g. */
static inline float angle(const float *u, const float *g)
{
    float cross[3] = {u[1] * g[2] - u[2] * g[1], u[2] * g[0] - u[0] * g[2], u[0] * g[1] - u[1] * g[0]};
    return DEGREES * atan2f(sqrtf(dot(cross, cross)), dot(u, g));
}

/* Compute the derivative of the angle by u: away from g along the sphere, over the length of u; 0 if both coincide. */
static inline void angle_gradient(const float *u, const float *g, float share, float *p)
{
    float along = dot(u, g) / dot(u, u), away[3];
    for (int j = 0; j < 3; j++) away[j] = along * u[j] - g[j];
    float squared = dot(away, away) * dot(u, u), factor = squared == 0 ? 0 : share * DEGREES / sqrtf(squared);
    for (int j = 0; j < 3; j++) p[j] = factor * away[j];
}

/* Compute the same, and in `turned` its change as u moves by `moved`. */
static inline void angle_curvature(const float *u, const float *g, const float *moved, float share, float *p,
    float *turned)
{
    float q = dot(u, u), d = dot(u, g), q_moves = 2 * dot(u, moved), away[3], away_moves[3];
    float along = d / q, along_moves = dot(moved, g) / q - along * q_moves / q;
    for (int j = 0; j < 3; j++) {
        away[j] = along * u[j] - g[j];
        away_moves[j] = along_moves * u[j] + along * moved[j];
    }
    float squared = dot(away, away) * q, squared_moves = 2 * dot(away, away_moves) * q + dot(away, away) * q_moves;
    float factor = squared == 0 ? 0 : share * DEGREES / sqrtf(squared);
    float factor_moves = squared == 0 ? 0 : -0.5f * factor * squared_moves / squared;
    for (int j = 0; j < 3; j++) {
        p[j] = factor * away[j];
        turned[j] = factor_moves * away[j] + factor * away_moves[j];
    }
}

INLINED float add_gradient(sizes size, const net *sum, const net *w, const float *x, const float *g, float share,
    int with_angle)
{
    float z[size.P] __attribute__((aligned(64))), u[3], p[3];
    forward(size, w, x, z, u);
    angle_gradient(u, g, share, p);
    for (int j = 0; j < 3; j++) sum->b2[j] += p[j];
    EACH_VECTOR {
        vector d = p[0] * AT(w->w2) + p[1] * AT(w->w2 + size.P) + p[2] * AT(w->w2 + 2 * size.P);
        d *= slope(size, AT(z));
        AT(sum->b1) += d;
        EACH_INPUT AT(sum->w1 + f * size.P) += x[f] * d;
        for (int j = 0; j < 3; j++) AT(sum->w2 + j * size.P) += AT(z) * p[j];
    }
    return with_angle ? share * angle(u, g) : 0;
}

/* Add the product of the Hessian and v, by Pearlmutter's R operator: the change of the gradient along v. */
INLINED void add_hessian_product(sizes size, const net *sum, const net *w, const net *v, const float *x,
    const float *g, float share)
{
    float a_moves[size.P] __attribute__((aligned(64))), z[size.P] __attribute__((aligned(64)));
    float u[3], u_moves[3], p[3], p_moves[3];
    forward(size, w, x, z, u);
    vector m[3] = {{0}};
    EACH_VECTOR {
        vector a = AT(v->b1);
        EACH_INPUT a += x[f] * AT(v->w1 + f * size.P);
        AT(a_moves) = a;
        vector z_moves = slope(size, AT(z)) * a;
        for (int j = 0; j < 3; j++) m[j] += z_moves * AT(w->w2 + j * size.P) + AT(z) * AT(v->w2 + j * size.P);
    }
    for (int j = 0; j < 3; j++) u_moves[j] = sum_of(m[j]) + v->b2[j];
    angle_curvature(u, g, u_moves, share, p, p_moves);
    for (int j = 0; j < 3; j++) sum->b2[j] += p_moves[j];
    EACH_VECTOR {
        vector e = {0}, e_moves = {0}, z_moves = slope(size, AT(z)) * AT(a_moves);
        for (int j = 0; j < 3; j++) {
            e += p[j] * AT(w->w2 + j * size.P);
            e_moves += p_moves[j] * AT(w->w2 + j * size.P) + p[j] * AT(v->w2 + j * size.P);
            AT(sum->w2 + j * size.P) += z_moves * p[j] + AT(z) * p_moves[j];
        }
        vector d_moves = bend(size, AT(z)) * AT(a_moves) * e + slope(size, AT(z)) * e_moves;
        AT(sum->b1) += d_moves;
        EACH_INPUT AT(sum->w1 + f * size.P) += x[f] * d_moves;
    }
}

#define EACH_SAMPLE(m) \
    const float *x = s->code + s->row[m] * s->n * size.F, *g = s->gaze + s->row[m] * s->n * 3; \
    const float share = 1.0f / s->count[m]; \
    (void)share; \
    for (int64_t i = 0; i < s->count[m]; i++, x += size.F, g += 3)

INLINED void each_sgd(sizes size, int64_t models, const samples *s, const tensors *weights, float rate, int64_t steps)
{
    NET(w);
    NET(sum);
    for (int64_t m = 0; m < models; m++) {
        load(size, &w, weights, m);
        for (int64_t step = 0; step < steps; step++) {
            memset(sum_block, 0, sizeof sum_block);
            EACH_SAMPLE(m) add_gradient(size, &sum, &w, x, g, share, 0);
            for (int i = 0; i < PARAMETERS; i++) w_block[i] -= rate * sum_block[i];
        }
        store(size, weights, m, &w);
    }
}

INLINED void each_gradient(sizes size, int64_t models, const samples *s, const tensors *weights, const tensors *out,
    float *degrees)
{
    NET(w);
    NET(sum);
    for (int64_t m = 0; m < models; m++) {
        double total = 0;
        load(size, &w, weights, m);
        memset(sum_block, 0, sizeof sum_block);
        EACH_SAMPLE(m) total += add_gradient(size, &sum, &w, x, g, share, 1);
        store(size, out, m, &sum);
        degrees[m] = total;
    }
}

INLINED void each_hessian_product(sizes size, int64_t models, const samples *s, const tensors *weights,
    const tensors *directions, const tensors *out)
{
    NET(w);
    NET(v);
    NET(sum);
    for (int64_t m = 0; m < models; m++) {
        load(size, &w, weights, m);
        load(size, &v, directions, m);
        memset(sum_block, 0, sizeof sum_block);
        EACH_SAMPLE(m) add_hessian_product(size, &sum, &w, &v, x, g, share);
        store(size, out, m, &sum);
    }
}

INLINED void each_mean_angle(sizes size, int64_t models, const samples *s, const tensors *weights, double *degrees)
{
    float z[size.P] __attribute__((aligned(64)));
    NET(w);
    for (int64_t m = 0; m < models; m++) {
        double total = 0;
        load(size, &w, weights, m);
        EACH_SAMPLE(m) {
            float u[3];
            forward(size, &w, x, z, u);
            total += angle(u, g);
        }
        degrees[m] = total / s->count[m];
    }
}

/* Call a function with the default F as a constant, or with another. */
#define WITH_SIZES(function, ...) \
    int64_t padded = (size->H + LANES - 1) / LANES * LANES; \
    if (size->F == 6) \
        function((sizes){6, size->H, size->relu, padded}, models, s, weights, __VA_ARGS__); \
    else \
        function((sizes){size->F, size->H, size->relu, padded}, models, s, weights, __VA_ARGS__)

/* Move each of `models` networks by `steps` full-batch steps of SGD. */
void sgd(const sizes *size, int64_t models, const samples *s, const tensors *weights, float rate, int64_t steps)
{
    WITH_SIZES(each_sgd, rate, steps);
}

/* Compute the gradient of each model's mean angle, and the angle itself, degrees. */
void gradient(const sizes *size, int64_t models, const samples *s, const tensors *weights, const tensors *out,
    float *degrees)
{
    WITH_SIZES(each_gradient, out, degrees);
}

/* Multiply the Hessian of each model's mean angle by a direction. */
void hessian_product(const sizes *size, int64_t models, const samples *s, const tensors *weights,
    const tensors *directions, const tensors *out)
{
    WITH_SIZES(each_hessian_product, directions, out);
}

/* Compute the mean angle of each model, degrees. */
void mean_angle(const sizes *size, int64_t models, const samples *s, const tensors *weights, double *degrees)
{
    WITH_SIZES(each_mean_angle, degrees);
}

/* Gaze networks for few-shot learning, one after the other: SGD, gradient, Hessian product and error of the mean angle.
 *
 * A network: code (F) -> hidden (H), SELU or ReLU -> vector (3), whose length does not matter. A model's weights and
 * gradient, 5 kB, stay in a core's first cache through all of its steps, and every loop over H is vectorised.
 * faze.fewshot.native compiles this with F, H and RELU defined; faze.fewshot.kernel is the same in torch.
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
#define EACH_INPUT _Pragma("GCC unroll 64") for (int f = 0; f < F; f++)

typedef struct { /* one network, or what has its shape; output weights by output, unlike the tensors */
    _Alignas(64) float w1[F][H];
    float b1[H], w2[3][H], b2[3];
} net;
#define NUMBERS ((int)((F * H + H + 3 * H + 3)))

typedef struct { float *w1, *b1, *w2, *b2; } tensors; /* of M networks */
typedef struct { const float *code, *gaze; const int64_t *row, *count; int64_t n; } samples;

static void load(net *to, tensors from, int64_t m)
{
    memcpy(to->w1, from.w1 + m * F * H, sizeof to->w1);
    memcpy(to->b1, from.b1 + m * H, sizeof to->b1);
    for (int h = 0; h < H; h++)
        for (int j = 0; j < 3; j++) to->w2[j][h] = from.w2[(m * H + h) * 3 + j];
    memcpy(to->b2, from.b2 + m * 3, sizeof to->b2);
}

static void store(tensors to, int64_t m, const net *from)
{
    memcpy(to.w1 + m * F * H, from->w1, sizeof from->w1);
    memcpy(to.b1 + m * H, from->b1, sizeof from->b1);
    for (int h = 0; h < H; h++)
        for (int j = 0; j < 3; j++) to.w2[(m * H + h) * 3 + j] = from->w2[j][h];
    memcpy(to.b2 + m * 3, from->b2, sizeof from->b2);
}

/* Comparisons are such that NaN passes through everything here: who diverges must be seen. */
static inline float exp_of_negative(float x)
{
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f), r = x - n * 0.693145752f - n * 1.42860677e-6f; /* |r| <= ln(2) / 2 */
    float series = 1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f)))));
    union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
    return series * power.value;
}

static inline float activate(float a)
{
#if RELU
    return a < 0 ? 0 : a;
#else
    return a > 0 ? SCALE * a : SCALE * ALPHA * (exp_of_negative(a > 0 ? 0 : a) - 1);
#endif
}

/* First and second derivative of the activation, from its value. */
static inline float slope(float z) { return RELU ? (z > 0 ? 1 : 0) : (z > 0 ? SCALE : z + SCALE * ALPHA); }
static inline float bend(float z) { return RELU || z > 0 ? 0 : z + SCALE * ALPHA; }

static inline void forward(const net *w, const float *x, float *z, float *u)
{
    float u0 = 0, u1 = 0, u2 = 0;
    for (int h = 0; h < H; h++) {
        float a = w->b1[h];
        EACH_INPUT a += x[f] * w->w1[f][h];
        z[h] = activate(a);
        u0 += z[h] * w->w2[0][h];
        u1 += z[h] * w->w2[1][h];
        u2 += z[h] * w->w2[2][h];
    }
    u[0] = u0 + w->b2[0], u[1] = u1 + w->b2[1], u[2] = u2 + w->b2[2];
}

static inline float dot(const float *a, const float *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/* Degrees between u, of any length, and g. */
static inline float angle(const float *u, const float *g)
{
    float cross[3] = {u[1] * g[2] - u[2] * g[1], u[2] * g[0] - u[0] * g[2], u[0] * g[1] - u[1] * g[0]};
    return DEGREES * atan2f(sqrtf(dot(cross, cross)), dot(u, g));
}

/* Derivative of the angle by u: from g away along the sphere, over the length of u; 0 where the two coincide. */
static inline void angle_gradient(const float *u, const float *g, float share, float *p)
{
    float along = dot(u, g) / dot(u, u), away[3];
    for (int j = 0; j < 3; j++) away[j] = along * u[j] - g[j];
    float squared = dot(away, away) * dot(u, u), factor = squared == 0 ? 0 : share * DEGREES / sqrtf(squared);
    for (int j = 0; j < 3; j++) p[j] = factor * away[j];
}

/* The same and, in turned, how it changes as u moves by `moved`. */
static inline void angle_curvature(const float *u, const float *g, const float *moved, float share, float *p, float *turned)
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

static inline float add_gradient(net *sum, const net *w, const float *x, const float *g, float share, int with_angle)
{
    _Alignas(64) float z[H];
    float u[3], p[3];
    forward(w, x, z, u);
    angle_gradient(u, g, share, p);
    for (int j = 0; j < 3; j++) sum->b2[j] += p[j];
    for (int h = 0; h < H; h++) {
        float d = (p[0] * w->w2[0][h] + p[1] * w->w2[1][h] + p[2] * w->w2[2][h]) * slope(z[h]);
        sum->b1[h] += d;
        EACH_INPUT sum->w1[f][h] += x[f] * d;
        for (int j = 0; j < 3; j++) sum->w2[j][h] += z[h] * p[j];
    }
    return with_angle ? share * angle(u, g) : 0;
}

/* Hessian times v, by Pearlmutter's R operator: what the gradient does as the weights move along v. */
static inline void add_hessian_product(net *sum, const net *w, const net *v, const float *x, const float *g, float share)
{
    _Alignas(64) float z[H], z_moves[H];
    float u[3], u_moves[3] = {v->b2[0], v->b2[1], v->b2[2]}, p[3], p_moves[3];
    forward(w, x, z, u);
    float m0 = 0, m1 = 0, m2 = 0;
    for (int h = 0; h < H; h++) {
        float a_moves = v->b1[h];
        EACH_INPUT a_moves += x[f] * v->w1[f][h];
        z_moves[h] = slope(z[h]) * a_moves;
        m0 += z_moves[h] * w->w2[0][h] + z[h] * v->w2[0][h];
        m1 += z_moves[h] * w->w2[1][h] + z[h] * v->w2[1][h];
        m2 += z_moves[h] * w->w2[2][h] + z[h] * v->w2[2][h];
    }
    u_moves[0] += m0, u_moves[1] += m1, u_moves[2] += m2;
    angle_curvature(u, g, u_moves, share, p, p_moves);
    for (int j = 0; j < 3; j++) sum->b2[j] += p_moves[j];
    for (int h = 0; h < H; h++) {
        float e = 0, e_moves = 0, a_moves = v->b1[h];
        EACH_INPUT a_moves += x[f] * v->w1[f][h];
        for (int j = 0; j < 3; j++) {
            e += p[j] * w->w2[j][h];
            e_moves += p_moves[j] * w->w2[j][h] + p[j] * v->w2[j][h];
        }
        float d_moves = bend(z[h]) * a_moves * e + slope(z[h]) * e_moves;
        sum->b1[h] += d_moves;
        EACH_INPUT sum->w1[f][h] += x[f] * d_moves;
        for (int j = 0; j < 3; j++) sum->w2[j][h] += z_moves[h] * p[j] + z[h] * p_moves[j];
    }
}

#define EACH_SAMPLE(m) \
    const float *x = s->code + s->row[m] * s->n * F, *g = s->gaze + s->row[m] * s->n * 3; \
    const float share = 1.0f / s->count[m]; \
    (void)share; \
    for (int64_t i = 0; i < s->count[m]; i++, x += F, g += 3)

/* Move each of `models` networks by `steps` full-batch steps of SGD, each parameter at its own rate, (1, ...). */
void sgd(int64_t models, const samples *s, const tensors *weights, const tensors *rates, int64_t steps)
{
    net w, rate, sum;
    load(&rate, *rates, 0);
    for (int64_t m = 0; m < models; m++) {
        load(&w, *weights, m);
        for (int64_t step = 0; step < steps; step++) {
            memset(&sum, 0, sizeof sum);
            EACH_SAMPLE(m) add_gradient(&sum, &w, x, g, share, 0);
            float *to = (float *)&w, *by = (float *)&sum, *at = (float *)&rate;
            for (int i = 0; i < NUMBERS; i++) to[i] -= at[i] * by[i];
        }
        store(*weights, m, &w);
    }
}

/* Gradient of each model's mean angle, and the angle itself, degrees. */
void gradient(int64_t models, const samples *s, const tensors *weights, const tensors *out, float *degrees)
{
    net w, sum;
    for (int64_t m = 0; m < models; m++) {
        double total = 0;
        load(&w, *weights, m);
        memset(&sum, 0, sizeof sum);
        EACH_SAMPLE(m) total += add_gradient(&sum, &w, x, g, share, 1);
        store(*out, m, &sum);
        degrees[m] = total;
    }
}

/* Hessian of each model's mean angle times a direction. */
void hessian_product(
    int64_t models, const samples *s, const tensors *weights, const tensors *directions, const tensors *out)
{
    net w, v, sum;
    for (int64_t m = 0; m < models; m++) {
        load(&w, *weights, m);
        load(&v, *directions, m);
        memset(&sum, 0, sizeof sum);
        EACH_SAMPLE(m) add_hessian_product(&sum, &w, &v, x, g, share);
        store(*out, m, &sum);
    }
}

/* Mean angle of each model, degrees. */
void mean_angle(int64_t models, const samples *s, const tensors *weights, double *degrees)
{
    net w;
    _Alignas(64) float z[H];
    for (int64_t m = 0; m < models; m++) {
        double total = 0;
        load(&w, *weights, m);
        EACH_SAMPLE(m) {
            float u[3];
            forward(&w, x, z, u);
            total += angle(u, g);
        }
        degrees[m] = total / s->count[m];
    }
}

/* Shade the samples of a head, an eye and spectacles along camera rays: the expensive part of rendering a frame.
 *
 * faze.data.synthetic.layers calls this. All is in the head frame, mm, float32. A row of samples passes through short
 * loops that the compiler vectorises. Nothing is contracted or reordered (KERNELS in faze.native.compiled): a silhouette
 * is sharp, and rounding decides whether a ray meets the head.
 *
 * Maps are contiguous; those of colours and normals have four channels. Planes are (h, w) each, one after the other.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EACH(i, n) for (int i = 0; i < (n); i++)
#ifdef FP_FAST_FMAF /* as OpenCV does when it resizes */
#define FUSED(a, b, c) fmaf(a, b, c)
#else
#define FUSED(a, b, c) ((a) * (b) + (c))
#endif

typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias)); /* one sample of a map */
typedef struct { const float *data; int32_t rows, columns; } map;
typedef struct { float x, y, z; } vec;
typedef struct { vec towards; float width_rad, strength; } mirrored; /* a light that is reflected in eyes and spectacles */
typedef struct {
    map displacement, normal, colour, iris, lashes[2]; /* lashes have a border of zeros */
    float eyeball_mm, iris_mm, sclera[3], caruncle[3], pink[3], ink[3], lashes_cover;
} person;
typedef struct { /* of the modules eyes, person and surface, where each is explained */
    float per_axis[3], axis_z, left, top, shape_per_mm, colour_per_mm, cornea_radius_mm, iris_half_mm, iris_per_mm;
    float lash_above_mm, lash_per_mm, lash_width, front_radius_mm, tilt, lens_edge_mm, bridge_above_mm, bridge_half_mm;
    int32_t rounds, feather_px;
} constants;
typedef struct {
    double lens[9]; /* fx fy cx cy k1 k2 p1 p2 k3 */
    float rotation[9];
    vec origin, start; /* rotation: head to camera; the camera in the head frame, and in that of the ellipsoid */
    vec key, screen;
    float key_rgb[3], screen_rgb[3], ambient[3];
    mirrored lights[2];
    float exposure;
    constants k;
} view;
typedef struct {
    vec start;
    float power;
    vec cornea;
    float cornea_power; /* the camera relative to the centres of eyeball and cornea; power: distance^2 - radius^2 */
    vec axis, right, down; /* the optical axis, and the plane of the iris */
    float pupil_mm, scale, from, tilt, upper, lower, fold; /* the fields of eyes.Margins */
    int32_t side, left, top, width, height; /* side: 0 or 1; the box of the eye in the band */
} eye;
typedef struct {
    float plane, behind, middle, centre[4], per_half[2], half, bend[2], rim_mm, reflectance, metal[3], glow;
} spectacles;

enum { X = 3, Y, RAY, PLANES = RAY + 3 }; /* planes 0 to 2 hold the colour */
#define AT(k, i) plane[(k) * step + (i)] /* a row of planes, which are `step` apart */

static inline float least(float a, float b) { return a < b ? a : b; } /* b if a is NaN */
static inline float most(float a, float b) { return a > b ? a : b; }
static inline float unit(float a) { return least(most(a, 0), 1); }
static inline float ramp(float a) { a = unit(a); return a * a * (3 - 2 * a); }
static inline float dot(vec a, vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static inline float length(vec a) { return sqrtf(dot(a, a)); }

/* Return exp(-x * x). */
static inline float bell(float x)
{
    x = most(-x * x, -87.0f);
    float n = rintf(x * 1.44269504f), r = x - n * 0.693145752f - n * 1.42860677e-6f; /* |r| <= ln(2) / 2 */
    float series = 1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f)))));
    union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
    return series * power.value;
}

/* Return sin(pi * a) for a in 0..1. */
static inline float arch(float a)
{
    float z = 3.14159265f * least(a, 1 - a), s = z * z;
    return z * (1 + s * (-0.166666667f + s * (0.00833333333f + s * (-0.000198412698f + s * (2.75573192e-6f - s * 2.50521084e-8f)))));
}

/* Return the sample of a map before `at`, and in `beyond` the distance from it, in samples; clamp to the edges. */
static inline int place(float at, int last, float *beyond)
{
    at = least(most(at, 0), (float)last);
    int whole = (int)at;
    whole = whole < last ? whole : last - 1;
    *beyond = at - (float)whole;
    return whole;
}

static void look_up(const map *m, int n, const float *column, const float *row, float *restrict out)
{
    const float *restrict data = m->data;
    int at[n], next = m->columns;
    float right[n], down[n];
    EACH(i, n) at[i] = place(row[i], m->rows - 1, &down[i]) * m->columns + place(column[i], m->columns - 1, &right[i]);
    EACH(i, n) {
        float above = data[at[i]] + right[i] * (data[at[i] + 1] - data[at[i]]), below = data[at[i] + next];
        below += right[i] * (data[at[i] + next + 1] - below);
        out[i] = above + down[i] * (below - above);
    }
}

#define AHEAD 24 /* samples ahead, for which maps are prefetched: a map is larger than the second-level cache of a core */
static void look_up_3(const map *m, int n, const float *column, const float *row, float *restrict a, float *restrict b, float *restrict c)
{
    int at[n + AHEAD];
    float right[n], down[n];
    EACH(i, n) at[i] = place(row[i], m->rows - 1, &down[i]) * m->columns + place(column[i], m->columns - 1, &right[i]);
    EACH(i, AHEAD) at[n + i] = at[n - 1];
    EACH(i, n) {
        const v4 *upper = (const v4 *)m->data + at[i], *lower = upper + m->columns;
        __builtin_prefetch(upper + (at[i + AHEAD] - at[i])), __builtin_prefetch(lower + (at[i + AHEAD] - at[i]));
        v4 above = upper[0] + right[i] * (upper[1] - upper[0]), below = lower[0] + right[i] * (lower[1] - lower[0]);
        v4 found = above + down[i] * (below - above);
        a[i] = found[0], b[i] = found[1], c[i] = found[2];
    }
}

/* One axis of a grid of rays: samples between knots, at which the lens is inverted. */
typedef struct { int samples, knots, *begin; double first, step, *beyond; } axis; /* begin: first sample of each knot */

static int make_axis(axis *a, int start, int length, double scale)
{
    a->samples = (int)rint(length * scale), a->knots = length / 16 + 2;
    a->first = start - 0.5 + 0.5 / scale;
    a->step = (start - 0.5 + (a->samples - 0.5) / scale - a->first) / (a->knots - 1);
    a->begin = calloc(a->knots + 1, sizeof(int)), a->beyond = malloc(a->samples * sizeof(double));
    if (!a->begin || !a->beyond) return 1;
    int knot = 0;
    EACH(i, a->samples) {
        double at = i / scale / a->step;
        while (knot < a->knots - 2 && at >= knot + 1) a->begin[++knot] = i;
        a->beyond[i] = at - knot;
    }
    while (knot < a->knots - 1) a->begin[++knot] = a->samples;
    return 0;
}

static int knot_of(const axis *a, int sample)
{
    int knot = 0;
    while (a->begin[knot + 1] <= sample) knot++;
    return knot;
}

/* Compute Camera.rays at all knots: (rows, columns, 2). */
static void invert_lens(const double *lens, const axis *across, const axis *down, double *out)
{
    EACH(row, down->knots) EACH(column, across->knots) {
        double seen_x = (across->first + column * across->step - lens[2]) / lens[0];
        double seen_y = (down->first + row * down->step - lens[3]) / lens[1], x = seen_x, y = seen_y;
        EACH(round, 8) {
            double r2 = x * x + y * y, radial = 1 + r2 * (lens[4] + r2 * (lens[5] + r2 * lens[8]));
            double at_x = x * radial + 2 * lens[6] * x * y + lens[7] * (r2 + 2 * x * x);
            double at_y = y * radial + lens[6] * (r2 + 2 * y * y) + 2 * lens[7] * x * y;
            x += seen_x - at_x, y += seen_y - at_y;
        }
        out[2 * (row * across->knots + column)] = x, out[2 * (row * across->knots + column) + 1] = y;
    }
}

/* Compute the directions of a row of samples in the head frame. */
static void turn_rays(const view *v, const axis *across, const axis *down, const double *grid, int row, float *restrict out, size_t step)
{
    double beyond = down->beyond[row], knots[2][across->knots];
    const double *upper = grid + 2 * across->knots * knot_of(down, row), *lower = upper + 2 * across->knots;
    EACH(k, across->knots) EACH(c, 2) knots[c][k] = (1 - beyond) * upper[2 * k + c] + beyond * lower[2 * k + c];
    const float *r = v->rotation;
    EACH(k, across->knots - 1) {
        const double x = knots[0][k], y = knots[1][k], more_x = knots[0][k + 1], more_y = knots[1][k + 1];
        for (int i = across->begin[k]; i < across->begin[k + 1]; i++) {
            double share = across->beyond[i];
            float at_x = (float)((1 - share) * x + share * more_x), at_y = (float)((1 - share) * y + share * more_y);
            EACH(c, 3) out[c * step + i] = at_x * r[c] + at_y * r[3 + c] + r[6 + c];
        }
    }
}

/* Compute Face.hit and Face.look_up for a row, and light the colours. */
static void meet_face(const view *v, const person *p, int n, float *restrict plane, size_t step, float *restrict inside)
{
    float *x = plane + X * step, *y = plane + Y * step;
    float a[n], lateral[n], deep[n], depth[n], column[n], row[n], normal[3][n];
    const vec s = v->start;
    const float rest = s.x * s.x + s.y * s.y - 1;
    EACH(i, n) {
        float d0 = AT(RAY, i) * v->k.per_axis[0], d1 = AT(RAY + 1, i) * v->k.per_axis[1];
        deep[i] = AT(RAY + 2, i) * v->k.per_axis[2];
        a[i] = d0 * d0 + d1 * d1 + deep[i] * deep[i];
        lateral[i] = d0 * s.x + d1 * s.y;
        depth[i] = s.z;
    }
    EACH(round, v->k.rounds) {
        if (round) {
            EACH(i, n) column[i] = (x[i] - v->k.left) * v->k.shape_per_mm, row[i] = (y[i] - v->k.top) * v->k.shape_per_mm;
            look_up(&p->displacement, n, column, row, depth);
            EACH(i, n) depth[i] = s.z - depth[i] / v->k.axis_z;
        }
        EACH(i, n) {
            float b = lateral[i] + deep[i] * depth[i], square = b * b - a[i] * (rest + depth[i] * depth[i]);
            float t = (-b - sqrtf(most(square, 0))) / a[i];
            inside[i] = round ? inside[i] : square > 0;
            x[i] = v->origin.x + t * AT(RAY, i);
            y[i] = v->origin.y + t * AT(RAY + 1, i);
        }
    }
    EACH(i, n) column[i] = (x[i] - v->k.left) * v->k.shape_per_mm, row[i] = (y[i] - v->k.top) * v->k.shape_per_mm;
    look_up_3(&p->normal, n, column, row, normal[0], normal[1], normal[2]);
    EACH(i, n) column[i] = (x[i] - v->k.left) * v->k.colour_per_mm, row[i] = (y[i] - v->k.top) * v->k.colour_per_mm;
    look_up_3(&p->colour, n, column, row, &AT(0, 0), &AT(1, 0), &AT(2, 0));
    EACH(i, n) {
        vec out = {normal[0][i], normal[1][i], normal[2][i]};
        float key = most(dot(v->key, out) + 0.25f, 0) / 1.25f, screen = most(dot(v->screen, out) + 0.25f, 0) / 1.25f;
        EACH(c, 3) AT(c, i) *= key * v->key_rgb[c] + screen * v->screen_rgb[c] + v->ambient[c];
    }
}

static inline float shine(const mirrored *light, vec normal, vec ray)
{
    vec half = {light->towards.x - ray.x, light->towards.y - ray.y, light->towards.z - ray.z};
    return light->strength * bell((1 - dot(normal, half) / length(half)) / (0.5f * light->width_rad * light->width_rad));
}

/* Intersect a ray of unit length from `start`, relative to the centre, with a sphere; compute the unit normal, and return
 * a negative number if it misses. These are differences of large numbers: other rounding would give other pixels. */
static inline float meet_sphere(vec start, float power, float per_radius, vec ray, vec *normal)
{
    float b = dot(ray, start), square = b * b - power;
    float distance = -b - sqrtf(most(square, 0));
    normal->x = (start.x + distance * ray.x) * per_radius;
    normal->y = (start.y + distance * ray.y) * per_radius;
    normal->z = (start.z + distance * ray.z) * per_radius;
    return square;
}

/* Compute shade_eyeball for n samples. */
static void shade_eyeball(const view *v, const person *p, const eye *e, int n, const float *restrict plane, size_t step, float *restrict out, size_t out_step)
{
    float column[n], row[n], iris[3][n], radius[n], bright[n], cover[n], lit[3][n];
    EACH(i, n) {
        vec ray = {AT(RAY, i), AT(RAY + 1, i), AT(RAY + 2, i)}, m, k;
        float far = length(ray);
        ray.x /= far, ray.y /= far, ray.z /= far;
        float square = meet_sphere(e->start, e->power, 1 / p->eyeball_mm, ray, &m), beside = unit(0.5f - square * 0.06f);
        float key = most(dot(v->key, m) + 0.55f, 0) / 1.55f, screen = most(dot(v->screen, m) + 0.55f, 0) / 1.55f;
        EACH(c, 3) {
            lit[c][i] = key * v->key_rgb[c] + screen * v->screen_rgb[c] + v->ambient[c];
            out[c * out_step + i] = p->sclera[c] * lit[c][i];
            out[c * out_step + i] += beside * (p->caruncle[c] * lit[c][i] - out[c * out_step + i]);
        }
        float towards = dot(e->axis, m), off = sqrtf(most(1 - towards * towards, 0)) * p->eyeball_mm;
        cover[i] = (towards > 0) * ramp((p->iris_mm - off) / 0.7f + 0.5f);
        float across = dot(e->right, m) * p->eyeball_mm, down = dot(e->down, m) * p->eyeball_mm;
        column[i] = (across + v->k.iris_half_mm) * v->k.iris_per_mm, row[i] = (down + v->k.iris_half_mm) * v->k.iris_per_mm;
        radius[i] = sqrtf(across * across + down * down);
        float met = meet_sphere(e->cornea, e->cornea_power, 1 / v->k.cornea_radius_mm, ray, &k), glow = shine(&v->lights[0], k, ray) + shine(&v->lights[1], k, ray);
        bright[i] = glow * (dot(e->axis, k) > 0.72f) * (met > 0);
    }
    look_up_3(&p->iris, n, column, row, iris[0], iris[1], iris[2]);
    EACH(i, n) {
        float pupil = 1 - 0.93f * ramp((e->pupil_mm - radius[i]) / 0.3f + 0.5f);
        EACH(c, 3) out[c * out_step + i] += cover[i] * (iris[c][i] * pupil * (0.35f + 0.65f * lit[c][i]) - out[c * out_step + i]) + bright[i];
    }
}

/* Compute open_lids, shade_eyeball and cover_lids for n samples, and add a quarter of each to the sums. */
static void add_samples(const view *v, const person *p, const eye *e, int n, const float *restrict plane, size_t step, float *restrict sum, size_t sum_step)
{
    float along[n], upper[n], lower[n], crease[n], inside[n], between[n], column[n], row[n], hairs[n], open[3][n];
    int first = n, last = 0;
    EACH(i, n) {
        along[i] = e->scale * (AT(X, i) - e->from);
        float across = unit(along[i]), line = AT(Y, i) + e->tilt * across, sine = arch(across);
        float high = sqrtf(most(sine, 0)) * (1.04f - 0.12f * across), low = sine * (0.9f + 0.2f * across);
        upper[i] = line + e->upper * high;
        lower[i] = e->lower * low - line;
        crease[i] = line + e->fold * (0.3f + 0.7f * high);
        between[i] = ramp(least(along[i], 1 - along[i]) * 9);
        inside[i] = between[i] > 0 ? ramp(least(upper[i], lower[i]) / 0.35f + 0.5f) : 0;
        column[i] = along[i] * v->k.lash_width + 1, row[i] = (upper[i] + v->k.lash_above_mm) * v->k.lash_per_mm + 1;
    }
    EACH(i, n) if (inside[i] > 0) first = i < first ? i : first, last = i + 1;
    look_up(&p->lashes[e->side], n, column, row, hairs);
    EACH(c, 3) memset(open[c], 0, n * sizeof(float));
    if (first < last)
        shade_eyeball(v, p, e, last - first, plane + first, step, open[0] + first, n);
    static const float blood[3] = {0.4f, 1.8f, 1.8f};
    EACH(i, n) {
        float fold = 1 - 0.34f * bell(crease[i] * 1.3f) * between[i];
        float rim = upper[i] > 0 ? bell(lower[i] * 2 + 0.9f) * between[i] : 0, off = fabsf(along[i] - 0.5f), red = off * off * off;
        float shadow = (0.42f + 0.58f * ramp(upper[i] / 3.2f)) * (0.8f + 0.2f * ramp(lower[i]));
        shadow *= 0.62f + 0.38f * ramp(least(along[i], 1 - along[i]) / 0.16f);
        float line = bell((upper[i] + 0.1f) * 1.8f) * 0.75f, below = bell((lower[i] + 0.1f) * 2.2f) * 0.28f;
        float dark = most(most(line, below) * between[i], hairs[i]) * p->lashes_cover;
        EACH(c, 3) {
            float skin = AT(c, i) * fold + rim * p->pink[c];
            float colour = skin + inside[i] * (open[c][i] * shadow * (1 - red * blood[c]) - skin);
            sum[c * sum_step + i] += 0.25f * (colour + dark * (p->ink[c] - colour));
        }
    }
}

static float feather(const view *v, int i, int n) { return unit(least(i + 0.5f, n - 0.5f - i) / v->k.feather_px); }

/* Draw the part of the band with an eye, with four samples per pixel. */
static int draw_eye(const view *v, const person *p, const eye *e, const axis *band, int rows, float *planes)
{
    int w = e->width, h = e->height, stride = band->samples;
    if (w < 2 * v->k.feather_px || h < 2 * v->k.feather_px) return 0; /* at the frame's edge */
    float *drawn = calloc(3 * (size_t)w * h, sizeof(float));
    if (!drawn) return 1;
    float near[2][PLANES][2][w], samples[PLANES][w]; /* near: two rows of pixels, at both horizontal phases */
    EACH(y, h + 1) { /* samples are between rows y - 1 and y of the pixels */
        EACH(k, PLANES) {
            const float *at = planes + ((size_t)k * rows + e->top + (y < h ? y : h - 1)) * stride + e->left;
            float *even = near[y % 2][k][0], *odd = near[y % 2][k][1];
            even[0] = at[0], odd[w - 1] = at[w - 1];
            EACH(i, w - 1) odd[i] = FUSED(at[i + 1] - at[i], 0.25f, at[i]), even[i + 1] = FUSED(at[i + 1] - at[i], 0.75f, at[i]);
        }
        if (!y) memcpy(near[1], near[0], sizeof near[0]);
        EACH(phase_y, 2) EACH(phase_x, 2) {
            int row = y - 1 + phase_y; /* row of pixels that contains the samples */
            if (row < 0 || row == h) continue;
            EACH(k, PLANES) {
                const float *a = near[(y + 1) % 2][k][phase_x], *b = near[y % 2][k][phase_x], share = phase_y ? 0.75f : 0.25f;
                EACH(i, w) samples[k][i] = FUSED(b[i] - a[i], share, a[i]);
            }
            add_samples(v, p, e, w, samples[0], w, drawn + (size_t)row * w, (size_t)w * h);
        }
    }
    EACH(c, 3) EACH(y, h) {
        float *to = planes + ((size_t)c * rows + e->top + y) * stride + e->left, *from = drawn + ((size_t)c * h + y) * w, down = feather(v, y, h);
        EACH(i, w) to[i] += down * feather(v, i, w) * (from[i] - to[i]);
    }
    free(drawn);
    return 0;
}

/* Compute Spectacles.meet: the offset from the centre of the nearer lens, if it is the right one, the distance beyond its
 * edge, and the cover. */
static inline void meet_lens(const view *v, const spectacles *s, vec ray, float *aside, float *below, int *right, float *beyond, float *in)
{
    float reach = s->plane / ray.z, x = v->origin.x + reach * ray.x, y = v->origin.y + reach * ray.y;
    const float left_x = s->centre[0], left_y = s->centre[1], right_x = s->centre[2], right_y = s->centre[3];
    *right = x > s->middle;
    *aside = x - (*right ? right_x : left_x), *below = y - (*right ? right_y : left_y);
    float a = *aside * s->per_half[0], b = *below * s->per_half[1];
    *beyond = (sqrtf(sqrtf(a * a * (a * a) + b * b * (b * b))) - 1) * s->half;
    *in = ramp(0.5f - *beyond / v->k.lens_edge_mm);
}

static void bend_rays(const view *v, const spectacles *s, int n, float *restrict plane, size_t step)
{
    const float left = s->bend[0], right = s->bend[1];
    EACH(i, n) {
        vec ray = {AT(RAY, i), AT(RAY + 1, i), AT(RAY + 2, i)};
        float aside, below, beyond, in, longer = s->behind / ray.z;
        int on_right;
        meet_lens(v, s, ray, &aside, &below, &on_right, &beyond, &in);
        float turn = (on_right ? right : left) * in;
        AT(RAY, i) = ray.x * longer - aside * turn, AT(RAY + 1, i) = ray.y * longer - below * turn, AT(RAY + 2, i) = ray.z * longer;
    }
}

/* Compute Spectacles.cover, along rays that no lens has bent. */
static void cover_spectacles(const view *v, const spectacles *s, int n, float *restrict plane, size_t step)
{
    float glow[n], share[n], metal[n];
    EACH(i, n) {
        vec ray = {AT(RAY, i), AT(RAY + 1, i), AT(RAY + 2, i)};
        float aside, below, beyond, in, far = length(ray);
        int right;
        meet_lens(v, s, ray, &aside, &below, &right, &beyond, &in);
        vec front = {aside / v->k.front_radius_mm, below / v->k.front_radius_mm + v->k.tilt, -1};
        float steep = length(front);
        front.x /= steep, front.y /= steep, front.z /= steep, ray.x /= far, ray.y /= far, ray.z /= far;
        float mirrored = shine(&v->lights[0], front, ray) + shine(&v->lights[1], front, ray);
        glow[i] = 3 * mirrored + s->glow, share[i] = s->reflectance * in;
        float rim = ramp((s->rim_mm - fabsf(beyond - s->rim_mm)) / v->k.lens_edge_mm + 0.5f);
        float beside = fabsf(below - v->k.bridge_above_mm) - v->k.bridge_half_mm, bridge = ramp(0.5f - beside / v->k.lens_edge_mm);
        metal[i] = most(rim, bridge * ((aside > 0) != right) * (beyond > 0));
    }
    EACH(c, 3) EACH(i, n) {
        float seen = AT(c, i) + share[i] * (glow[i] - AT(c, i));
        AT(c, i) = seen + metal[i] * (s->metal[c] - seen);
    }
}

/* Paint a box (left, top, width, height) of the frame: levels (h, w, 3), and inside (h, w), 1 where rays meet the head.
 * `eyes` has two elements or none, and `s` may be NULL. Return 1 if there is not enough memory. */
int paint(const view *v, const person *p, const int32_t *box, double scale, const eye *eyes, int32_t count, const spectacles *s, uint8_t *levels, float *inside)
{
    axis across = {0}, down = {0};
    int failed = make_axis(&across, box[0], box[2], scale) | make_axis(&down, box[1], box[3], scale);
    int w = across.samples, h = down.samples;
    size_t step = (size_t)w * h;
    double *grid = malloc(2 * sizeof(double) * across.knots * down.knots);
    float *planes = malloc(PLANES * sizeof(float) * step);
    failed |= !grid || !planes;
    if (!failed) {
        invert_lens(v->lens, &across, &down, grid);
        EACH(y, h) {
            float *plane = planes + (size_t)y * w;
            turn_rays(v, &across, &down, grid, y, &AT(RAY, 0), step);
            if (s) bend_rays(v, s, w, plane, step);
            meet_face(v, p, w, plane, step, inside + (size_t)y * w);
        }
        EACH(i, count) failed |= draw_eye(v, p, &eyes[i], &across, h, planes);
        EACH(y, h) {
            float *plane = planes + (size_t)y * w;
            uint8_t *to = levels + 3 * (size_t)y * w;
            if (s) {
                turn_rays(v, &across, &down, grid, y, &AT(RAY, 0), step);
                cover_spectacles(v, s, w, plane, step);
            }
            EACH(i, w) EACH(c, 3) to[3 * i + c] = (uint8_t)(int)least(rintf(fabsf(AT(c, i) * v->exposure)), 255);
        }
    }
    free(across.begin), free(across.beyond), free(down.begin), free(down.beyond), free(grid), free(planes);
    return failed;
}

/* Blend levels (h, w, 3) into rows of a frame, `stride` bytes each, by the cover (h, w). */
void blend(uint8_t *frame, int64_t stride, const uint8_t *levels, const float *cover, int32_t w, int32_t h)
{
    EACH(y, h) {
        uint8_t *to = frame + y * stride;
        const uint8_t *from = levels + 3 * (size_t)y * w;
        const float *share = cover + (size_t)y * w;
        int first = 0, last = w;
        float wide[3 * w];
        while (first < last && share[first] <= 0) first++;
        while (last > first && share[last - 1] <= 0) last--;
        for (int i = first; i < last; i++) EACH(c, 3) wide[3 * i + c] = unit(share[i]);
        for (int i = 3 * first; i < 3 * last; i++)
            to[i] = (uint8_t)(int)rintf((from[i] * wide[i] + to[i] * (1 - wide[i])) / 1.00001f); /* as cv2.blendLinear */
    }
}

/* Add noise around 128 to a frame with n levels per row. */
void add_noise(uint8_t *frame, const uint8_t *noise, int64_t noise_stride, int32_t n, int32_t rows)
{
    EACH(y, rows) EACH(i, n) {
        int level = frame[(size_t)y * n + i] + noise[y * noise_stride + i] - 128;
        frame[(size_t)y * n + i] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
    }
}

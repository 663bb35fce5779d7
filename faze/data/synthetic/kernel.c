/* Shade a head, its eyes and its spectacles along camera rays: the expensive part of rendering a frame.
 *
 * kernel.py fills the structs. Everything is in the head frame, in mm. A row of samples passes through short loops that
 * the compiler vectorises. Sums are not reordered, since rounding decides whether a ray meets the head.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define EACH(i, n) for (int i = 0; i < (n); i++)
#define FEATHER_PX 5 /* width over which the band and the eyes fade into the picture below */
#define RIM_EDGE_MM 0.5f /* width over which a rim's edge fades */

typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias)); /* one sample of a map with four channels */
typedef struct { float x, y, z; } vec;
typedef struct {
    const float *data; /* (rows, columns) or (rows, columns, 4) */
    int32_t rows, columns;
    float left, top, across, down; /* position of the first sample; samples per unit along x and y */
} map;
typedef struct {
    map displacement, normal, colour, iris, lashes[2]; /* lashes have a border of zeros */
} maps;

/* The structs below contain only floats, in the order in which kernel.py writes them. */
typedef struct {
    vec axes; /* of the ellipsoid */
    float eyeball_mm, iris_mm, cornea_mm, sclera[3], caruncle[3], wet_rim[3], ink[3], lashes_cover;
} person;
typedef struct { vec towards; float width_rad, strength; } mirrored; /* a light that eyes and spectacles reflect */
typedef struct {
    float rotation[9]; /* head -> camera */
    vec camera, start; /* position of the camera in the head frame; the same relative to the ellipsoid, in its axes */
    vec key, screen;
    float key_rgb[3], screen_rgb[3], ambient[3];
    mirrored lights[2];
    float exposure;
} view;
typedef struct {
    vec start; /* camera relative to the eyeball's centre */
    float power; /* distance^2 - radius^2 */
    vec cornea; /* the same for the cornea */
    float cornea_power;
    vec axis, right, down; /* optical axis, and the plane of the iris */
    float pupil_mm, per_mm, inner_mm, tilt_mm, upper_mm, lower_mm, fold_mm; /* the last six: place_lids in face.py */
} eye;
typedef struct {
    float plane, behind; /* z of the lenses and of the irises, relative to the camera */
    float middle, centre[4], per_half[2], half, bend[2], rim_mm, reflectance, metal[3], glow;
} spectacles;

/* Planes of a row of samples: the colour (three), the point on the face, the ray, and the effects of spectacles. */
enum { X = 3, Y, RAY, PLANES = RAY + 3, GLOW = PLANES, SHARE, METAL, ROW };

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
    float tail = r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f));
    float series = 1 + r * (1 + r * (0.5f + r * (0.166666667f + tail)));
    union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
    return series * power.value;
}

/* Return sin(pi * a) for a in 0..1. */
static inline float arch(float a)
{
    float z = 3.14159265f * least(a, 1 - a), s = z * z;
    float tail = s * (-0.000198412698f + s * (2.75573192e-6f - s * 2.50521084e-8f));
    return z * (1 + s * (-0.166666667f + s * (0.00833333333f + tail)));
}

/* Return the index of the sample before `at`, and in `beyond` the distance from it in samples; clamp to the edges. */
static inline int place(float at, int last, float *beyond)
{
    at = least(most(at, 0), (float)last);
    int whole = (int)at;
    whole = whole < last ? whole : last - 1;
    *beyond = at - (float)whole;
    return whole;
}

/* Find the samples of a map at n points x, y: the index before each, and the distances from it. */
static inline void find(
    const map *m, int n, int border, const float *x, const float *y, int *at, float *right, float *down)
{
    EACH(i, n) {
        int row = place((y[i] - m->top) * m->down + border, m->rows - 1, &down[i]);
        at[i] = row * m->columns + place((x[i] - m->left) * m->across + border, m->columns - 1, &right[i]);
    }
}

/* Interpolate a map of one channel. */
static void look_up(const map *m, int n, int border, const float *x, const float *y, float *restrict out)
{
    const float *restrict data = m->data;
    int at[n], next = m->columns;
    float right[n], down[n];
    find(m, n, border, x, y, at, right, down);
    EACH(i, n) {
        float above = data[at[i]] + right[i] * (data[at[i] + 1] - data[at[i]]), below = data[at[i] + next];
        below += right[i] * (data[at[i] + next + 1] - below);
        out[i] = above + down[i] * (below - above);
    }
}

#define AHEAD 24 /* how many samples ahead maps are prefetched: a map is larger than a core's second-level cache */

/* Interpolate the first three channels of a map with four. */
static void look_up_3(
    const map *m, int n, const float *x, const float *y, float *restrict a, float *restrict b, float *restrict c)
{
    int at[n + AHEAD];
    float right[n], down[n];
    find(m, n, 0, x, y, at, right, down);
    EACH(i, AHEAD) at[n + i] = at[n - 1];
    EACH(i, n) {
        const v4 *upper = (const v4 *)m->data + at[i], *lower = upper + m->columns;
        __builtin_prefetch(upper + (at[i + AHEAD] - at[i])), __builtin_prefetch(lower + (at[i + AHEAD] - at[i]));
        v4 above = upper[0] + right[i] * (upper[1] - upper[0]), below = lower[0] + right[i] * (lower[1] - lower[0]);
        v4 found = above + down[i] * (below - above);
        a[i] = found[0], b[i] = found[1], c[i] = found[2];
    }
}

/* One axis of a grid of samples. The lens is inverted only at knots, about 16 px apart. */
typedef struct {
    int samples, knots;
    double first, step, px; /* position of the first knot, distance between knots, and between samples, px */
} axis;

static axis place_knots(int start, int length, int samples)
{
    double px = (double)length / samples;
    int knots = length / 16 + 2;
    return (axis){samples, knots, start - 0.5 + 0.5 * px, (samples - 1) * px / (knots - 1), px};
}

/* Return the knot before a sample, and in `beyond` the distance from it, in steps. */
static inline int knot_before(const axis *a, int sample, double *beyond)
{
    double at = sample * a->px / a->step;
    int knot = (int)at < a->knots - 2 ? (int)at : a->knots - 2;
    *beyond = at - knot;
    return knot;
}

/* Compute the rays (x, y, 1), in the camera frame, in rows of knots. lens: fx fy cx cy k1 k2 p1 p2 k3. */
static void invert_lens(const double *lens, const axis *across, const axis *down, double rays[][2][across->samples])
{
    double at[2][across->knots], beyond;
    EACH(row, down->knots) {
        EACH(k, across->knots) {
            double seen_x = (across->first + k * across->step - lens[2]) / lens[0];
            double seen_y = (down->first + row * down->step - lens[3]) / lens[1], x = seen_x, y = seen_y;
            EACH(round, 8) {
                double r2 = x * x + y * y, radial = 1 + r2 * (lens[4] + r2 * (lens[5] + r2 * lens[8]));
                double at_x = x * radial + 2 * lens[6] * x * y + lens[7] * (r2 + 2 * x * x);
                double at_y = y * radial + lens[6] * (r2 + 2 * y * y) + 2 * lens[7] * x * y;
                x += seen_x - at_x, y += seen_y - at_y;
            }
            at[0][k] = x, at[1][k] = y;
        }
        EACH(i, across->samples) {
            int k = knot_before(across, i, &beyond);
            EACH(c, 2) rays[row][c][i] = (1 - beyond) * at[c][k] + beyond * at[c][k + 1];
        }
    }
}

/* Compute the directions, in the head frame, of a row of n samples. */
static void turn_rays(const view *v, const axis *down, int row, int n, double rays[][2][n], float plane[restrict][n])
{
    double beyond;
    const int k = knot_before(down, row, &beyond);
    const float *r = v->rotation;
    EACH(i, n) {
        float x = (float)((1 - beyond) * rays[k][0][i] + beyond * rays[k + 1][0][i]);
        float y = (float)((1 - beyond) * rays[k][1][i] + beyond * rays[k + 1][1][i]);
        EACH(c, 3) plane[RAY + c][i] = x * r[c] + y * r[3 + c] + r[6 + c];
    }
}

/* Find where a row of rays meets the face, and light its colour there. The face is an ellipsoid displaced along z: a
 * ray meets the face where the same ray, shifted by the displacement there, meets the ellipsoid. */
static void meet_face(const view *v, const person *p, const maps *m, int n, float plane[restrict][n], float *restrict inside)
{
    float *x = plane[X], *y = plane[Y];
    float a[n], lateral[n], deep[n], depth[n], normal[3][n];
    const vec s = v->start, per_axis = {1 / p->axes.x, 1 / p->axes.y, 1 / p->axes.z};
    const float rest = s.x * s.x + s.y * s.y - 1;
    EACH(i, n) {
        float d0 = plane[RAY][i] * per_axis.x, d1 = plane[RAY + 1][i] * per_axis.y;
        deep[i] = plane[RAY + 2][i] * per_axis.z;
        a[i] = d0 * d0 + d1 * d1 + deep[i] * deep[i];
        lateral[i] = d0 * s.x + d1 * s.y;
        depth[i] = s.z;
    }
    EACH(round, 3) { /* each round multiplies the error by about the surface's slope */
        if (round) {
            look_up(&m->displacement, n, 0, x, y, depth);
            EACH(i, n) depth[i] = s.z - depth[i] / p->axes.z;
        }
        EACH(i, n) {
            float b = lateral[i] + deep[i] * depth[i], square = b * b - a[i] * (rest + depth[i] * depth[i]);
            float t = (-b - sqrtf(most(square, 0))) / a[i];
            inside[i] = round ? inside[i] : square > 0;
            x[i] = v->camera.x + t * plane[RAY][i];
            y[i] = v->camera.y + t * plane[RAY + 1][i];
        }
    }
    look_up_3(&m->normal, n, x, y, normal[0], normal[1], normal[2]);
    look_up_3(&m->colour, n, x, y, plane[0], plane[1], plane[2]);
    EACH(i, n) {
        vec out = {normal[0][i], normal[1][i], normal[2][i]};
        float key = most(dot(v->key, out) + 0.25f, 0) / 1.25f, screen = most(dot(v->screen, out) + 0.25f, 0) / 1.25f;
        EACH(c, 3) plane[c][i] *= key * v->key_rgb[c] + screen * v->screen_rgb[c] + v->ambient[c];
    }
}

static inline float shine(const mirrored *light, vec normal, vec ray)
{
    vec half = {light->towards.x - ray.x, light->towards.y - ray.y, light->towards.z - ray.z};
    return light->strength * bell((1 - dot(normal, half) / length(half)) / (0.5f * light->width_rad * light->width_rad));
}

/* Intersect a ray of unit length from `start`, relative to the centre, with a sphere; compute the unit normal, and return
 * a negative number if it misses. */
static inline float meet_sphere(vec start, float power, float per_radius, vec ray, vec *normal)
{
    float b = dot(ray, start), square = b * b - power;
    float distance = -b - sqrtf(most(square, 0));
    normal->x = (start.x + distance * ray.x) * per_radius;
    normal->y = (start.y + distance * ray.y) * per_radius;
    normal->z = (start.z + distance * ray.z) * per_radius;
    return square;
}

/* Compute the colour of the open eye, without lids, for samples first .. last - 1 of n: sclera, iris, pupil and glints. */
static void shade_eyeball(
    const view *v, const person *p, const map *iris_map, const eye *e, int first, int last, int n,
    float plane[restrict][n], float out[restrict][n])
{
    float across[n], down[n], iris[3][n], radius[n], bright[n], cover[n], lit[3][n];
    for (int i = first; i < last; i++) {
        vec ray = {plane[RAY][i], plane[RAY + 1][i], plane[RAY + 2][i]}, m, k;
        float far = length(ray);
        ray.x /= far, ray.y /= far, ray.z /= far;
        float square = meet_sphere(e->start, e->power, 1 / p->eyeball_mm, ray, &m), beside = unit(0.5f - square * 0.06f);
        float key = most(dot(v->key, m) + 0.55f, 0) / 1.55f, screen = most(dot(v->screen, m) + 0.55f, 0) / 1.55f;
        EACH(c, 3) {
            lit[c][i] = key * v->key_rgb[c] + screen * v->screen_rgb[c] + v->ambient[c];
            out[c][i] = p->sclera[c] * lit[c][i];
            out[c][i] += beside * (p->caruncle[c] * lit[c][i] - out[c][i]);
        }
        float towards = dot(e->axis, m), off = sqrtf(most(1 - towards * towards, 0)) * p->eyeball_mm;
        cover[i] = (towards > 0) * ramp((p->iris_mm - off) / 0.7f + 0.5f);
        across[i] = dot(e->right, m) * p->eyeball_mm, down[i] = dot(e->down, m) * p->eyeball_mm;
        radius[i] = sqrtf(across[i] * across[i] + down[i] * down[i]);
        float met = meet_sphere(e->cornea, e->cornea_power, 1 / p->cornea_mm, ray, &k);
        float glow = shine(&v->lights[0], k, ray) + shine(&v->lights[1], k, ray);
        bright[i] = glow * (dot(e->axis, k) > 0.72f) * (met > 0);
    }
    look_up_3(iris_map, last - first, across + first, down + first, iris[0] + first, iris[1] + first, iris[2] + first);
    for (int i = first; i < last; i++) {
        float pupil = 1 - 0.93f * ramp((e->pupil_mm - radius[i]) / 0.3f + 0.5f);
        EACH(c, 3) out[c][i] += cover[i] * (iris[c][i] * pupil * (0.35f + 0.65f * lit[c][i]) - out[c][i]) + bright[i];
    }
}

/* Shade n samples of an eye with its lids, lashes and shadow, and add a quarter of each colour to the sums. */
static void add_samples(
    const view *v, const person *p, const maps *m, const eye *e, int side, int n, float plane[restrict][n],
    float sum[restrict][n])
{
    float along[n], upper[n], lower[n], crease[n], inside[n], between[n], hairs[n], open[3][n];
    int first = n, last = 0;
    EACH(i, n) {
        along[i] = e->per_mm * (plane[X][i] - e->inner_mm);
        float across = unit(along[i]), line = plane[Y][i] + e->tilt_mm * across, sine = arch(across);
        float high = sqrtf(most(sine, 0)) * (1.04f - 0.12f * across), low = sine * (0.9f + 0.2f * across);
        upper[i] = line + e->upper_mm * high;
        lower[i] = e->lower_mm * low - line;
        crease[i] = line + e->fold_mm * (0.3f + 0.7f * high);
        between[i] = ramp(least(along[i], 1 - along[i]) * 9);
        inside[i] = between[i] > 0 ? ramp(least(upper[i], lower[i]) / 0.35f + 0.5f) : 0;
    }
    EACH(i, n) if (inside[i] > 0) first = i < first ? i : first, last = i + 1;
    look_up(&m->lashes[side], n, 1, along, upper, hairs);
    memset(open, 0, sizeof open);
    if (first < last) shade_eyeball(v, p, &m->iris, e, first, last, n, plane, open);
    static const float blood[3] = {0.4f, 1.8f, 1.8f};
    EACH(i, n) {
        float fold = 1 - 0.34f * bell(crease[i] * 1.3f) * between[i];
        float rim = upper[i] > 0 ? bell(lower[i] * 2 + 0.9f) * between[i] : 0;
        float off = fabsf(along[i] - 0.5f), red = off * off * off;
        float shadow = (0.42f + 0.58f * ramp(upper[i] / 3.2f)) * (0.8f + 0.2f * ramp(lower[i]));
        shadow *= 0.62f + 0.38f * ramp(least(along[i], 1 - along[i]) / 0.16f);
        float line = bell((upper[i] + 0.1f) * 1.8f) * 0.75f, below = bell((lower[i] + 0.1f) * 2.2f) * 0.28f;
        float dark = most(most(line, below) * between[i], hairs[i]) * p->lashes_cover;
        EACH(c, 3) {
            float skin = plane[c][i] * fold + rim * p->wet_rim[c];
            float colour = skin + inside[i] * (open[c][i] * shadow * (1 - red * blood[c]) - skin);
            sum[c][i] += 0.25f * (colour + dark * (p->ink[c] - colour));
        }
    }
}

/* Return the opacity of sample i of n in a picture that fades at its edges. */
static inline float feather(int i, int n) { return unit(least(i + 0.5f, n - 0.5f - i) / FEATHER_PX); }

/* Draw an eye with four samples per pixel into its box (left, top, width, height) in the band's rows of w samples. */
static void draw_eye(
    const view *v, const person *p, const maps *m, const eye *e, int side, const int32_t *box, int w,
    float band[][ROW][w])
{
    const int left = box[0], top = box[1], n = box[2], h = box[3];
    if (n < 2 * FEATHER_PX || h < 2 * FEATHER_PX) return; /* cut off by the frame's edge */
    float drawn[h][3][n], near[2][PLANES][2][n], samples[PLANES][n]; /* near: two rows, at both horizontal phases */
    memset(drawn, 0, sizeof drawn);
    EACH(y, h + 1) { /* samples are between rows y - 1 and y of the pixels */
        EACH(k, PLANES) {
            const float *at = band[top + (y < h ? y : h - 1)][k] + left;
            float *even = near[y % 2][k][0], *odd = near[y % 2][k][1];
            even[0] = at[0], odd[n - 1] = at[n - 1];
            EACH(i, n - 1) {
                odd[i] = fmaf(at[i + 1] - at[i], 0.25f, at[i]);
                even[i + 1] = fmaf(at[i + 1] - at[i], 0.75f, at[i]);
            }
        }
        if (!y) memcpy(near[1], near[0], sizeof near[0]);
        EACH(phase_y, 2) EACH(phase_x, 2) {
            int row = y - 1 + phase_y; /* row of pixels that contains the samples */
            if (row < 0 || row == h) continue;
            const float share = phase_y ? 0.75f : 0.25f;
            EACH(k, PLANES) {
                const float *a = near[(y + 1) % 2][k][phase_x], *b = near[y % 2][k][phase_x];
                EACH(i, n) samples[k][i] = fmaf(b[i] - a[i], share, a[i]);
            }
            add_samples(v, p, m, e, side, n, samples, drawn[row]);
        }
    }
    EACH(y, h) EACH(c, 3) {
        float *to = band[top + y][c] + left, down = feather(y, h);
        EACH(i, n) to[i] += down * feather(i, n) * (drawn[y][c][i] - to[i]);
    }
}

/* Compute the reflections, rims and bridge of spectacles along straight rays, and bend the rays as the lenses do.
 * The compiler only vectorises this for separate arrays. */
static void meet_spectacles(
    const view *v, const spectacles *s, int n, float *restrict ray_x, float *restrict ray_y, float *restrict ray_z,
    float *restrict glow, float *restrict share, float *restrict metal)
{
    const float left_x = s->centre[0], left_y = s->centre[1], right_x = s->centre[2], right_y = s->centre[3];
    const float left_bend = s->bend[0], right_bend = s->bend[1];
    EACH(i, n) {
        vec ray = {ray_x[i], ray_y[i], ray_z[i]}, sight = ray;
        float reach = s->plane / ray.z, longer = s->behind / ray.z, far = length(ray);
        float x = v->camera.x + reach * ray.x, y = v->camera.y + reach * ray.y;
        int right = x > s->middle;
        float aside = x - (right ? right_x : left_x), below = y - (right ? right_y : left_y); /* of the lens's centre */
        float a = aside * s->per_half[0], b = below * s->per_half[1];
        float beyond = (sqrtf(sqrtf(a * a * (a * a) + b * b * (b * b))) - 1) * s->half; /* the lens's edge, mm */
        float in = ramp(0.5f - beyond / RIM_EDGE_MM), turn = (right ? right_bend : left_bend) * in;
        ray_x[i] = ray.x * longer - aside * turn;
        ray_y[i] = ray.y * longer - below * turn;
        ray_z[i] = ray.z * longer;
        vec front = {aside / 110, below / 110 + 0.12f, -1}; /* a sphere, tilted by 7 degrees towards the face */
        float steep = length(front);
        front.x /= steep, front.y /= steep, front.z /= steep, sight.x /= far, sight.y /= far, sight.z /= far;
        glow[i] = 3 * (shine(&v->lights[0], front, sight) + shine(&v->lights[1], front, sight)) + s->glow;
        share[i] = s->reflectance * in;
        float rim = ramp((s->rim_mm - fabsf(beyond - s->rim_mm)) / RIM_EDGE_MM + 0.5f);
        float bridge = ramp(0.5f - (fabsf(below + 5) - 1.2f) / RIM_EDGE_MM); /* 5 mm above the lenses' centres */
        metal[i] = most(rim, bridge * ((aside > 0) != right) * (beyond > 0));
    }
}

/* Paint a box (left, top, width, height) of the frame with w x h samples.
 *
 * lens: fx fy cx cy k1 k2 p1 p2 k3. eyes and eye_boxes, relative to the box: two or NULL. s: NULL without spectacles.
 * rows is working memory. Results: levels (h, w, 3), and inside (h, w), 1 where rays meet the head. */
void paint(
    const double *lens, const view *v, const person *p, const maps *m, const int32_t *box, int32_t w, int32_t h,
    const eye *eyes, const int32_t eye_boxes[][4], const spectacles *s, float rows[][ROW][w], uint8_t *levels,
    float *inside)
{
    const axis across = place_knots(box[0], box[2], w), down = place_knots(box[1], box[3], h);
    double rays[down.knots][2][w];
    invert_lens(lens, &across, &down, rays);
    EACH(y, h) {
        turn_rays(v, &down, y, w, rays, rows[y]);
        float(*row)[w] = rows[y];
        if (s) meet_spectacles(v, s, w, row[RAY], row[RAY + 1], row[RAY + 2], row[GLOW], row[SHARE], row[METAL]);
        meet_face(v, p, m, w, rows[y], inside + (size_t)y * w);
    }
    if (eyes) EACH(side, 2) draw_eye(v, p, m, &eyes[side], side, eye_boxes[side], w, rows);
    EACH(y, h) {
        float(*row)[w] = rows[y];
        if (s) EACH(c, 3) EACH(i, w) {
            float seen = row[c][i] + row[SHARE][i] * (row[GLOW][i] - row[c][i]);
            row[c][i] = seen + row[METAL][i] * (s->metal[c] - seen);
        }
        uint8_t *to = levels + 3 * (size_t)y * w;
        EACH(i, w) EACH(c, 3) to[3 * i + c] = (uint8_t)(int)least(rintf(fabsf(row[c][i] * v->exposure)), 255);
    }
}

/* Blend levels (h, w, 3) into rows of a frame, `stride` bytes each, by opacity (h, w); `feathered`: fade at edges. */
void blend(
    uint8_t *frame, int64_t stride, const uint8_t *levels, const float *opacity, int32_t w, int32_t h,
    int32_t feathered)
{
    EACH(y, h) {
        uint8_t *to = frame + y * stride;
        const uint8_t *from = levels + 3 * (size_t)y * w;
        float down = feather(y, h), wide[3 * w];
        EACH(i, w) {
            float share = unit(opacity[(size_t)y * w + i]) * (feathered ? down * feather(i, w) : 1);
            EACH(c, 3) wide[3 * i + c] = share;
        }
        EACH(i, 3 * w) to[i] = (uint8_t)(int)rintf((from[i] * wide[i] + to[i] * (1 - wide[i])) / 1.00001f); /* as OpenCV */
    }
}

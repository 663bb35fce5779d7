/* One layer of DT-ED for float32 images on a CPU: a convolution, then every form of its result that later layers read.
 *
 * faze.model.inference calls this layer by layer; faze.model.densenet computes the same in torch.
 *
 * A convolution is a sum of matrix products (outputs x channels) (channels x pixels) of planes, which are of two kinds:
 *
 * - Pixels of n images. Rows follow each other, each with a zero at its end. A row of zeros follows each image, and
 *   w + 2 zeros come first. So the neighbours of every pixel are at the same offsets, and there is a product for each
 *   neighbour, or "tap". The ends of rows are computed, too, and ignored.
 * - Tiles of 2 x 2 pixels, h / 2 x w / 2 rounded up, with a number in each of 16 planes: one plane for each product of
 *   Winograd's convolution F(2 x 2, 3 x 3) (Lavin and Gray 2016, arXiv 1509.09308). A doubling convolution has 25
 *   products of 16 such planes: in one direction, even pixels have one weight and odd pixels have two, and two
 *   neighbouring odd pixels need three products instead of four.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef int64_t integer;
#define INLINED static inline __attribute__((always_inline)) /* each call with its constants */

/* OUTPUTS x VECTORS sums are in registers: 24 of 32, or 12 of 16. */
#if defined(__AVX512F__)
enum { LANES = 16, OUTPUTS = 8 };
#elif defined(__AVX__)
enum { LANES = 8, OUTPUTS = 4 };
#else
enum { LANES = 4, OUTPUTS = 8 };
#endif
enum { VECTORS = 3, BLOCK = LANES * VECTORS, MOST_TAPS = 9, AHEAD = 16 /* planes, fetched before they are used */ };

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));
struct planes {
    float *at;      /* NULL: not requested */
    integer stride; /* floats from plane to plane */
    integer apart;  /* planes from the first to the second plane of a channel, if channels have several */
};

struct segment { /* consecutive channels that a product reads with the same taps */
    integer first, channels, taps, offset[MOST_TAPS];
};

enum reading { PIXELS, TILES, DOUBLING };
struct layer {
    integer reading, h, w, outputs; /* height and width of the map that is read */
    integer products, segments;
    const struct segment *segment; /* (products, segments) */
    const float *weights;          /* (products, outputs / OUTPUTS rounded up, segments, channels, taps, OUTPUTS) */
};

struct results { /* the requested forms of each output */
    struct planes active;      /* pixels of the activated output: after InstanceNorm -> LeakyReLU */
    struct planes pooled;      /* pixels: means of 2 x 2 pixels of the active plane */
    struct planes split;       /* four planes: the active pixels at (even, even), (even, odd), ... positions */
    struct planes tiles;       /* 16 planes of the active pixels, for a convolution */
    struct planes doubled;     /* 16 planes of the active pixels, for a doubling convolution */
    struct planes raw_doubled; /* the same of the output without normalisation and activation */
    float *means;              /* (n, ...) means of the output over each image, before normalisation */
    integer means_stride;
    float *maps; /* (n, outputs, h, w) output without normalisation and activation */
    float epsilon, slope; /* of InstanceNorm and of LeakyReLU */
};

integer outputs_at_once(void) { return OUTPUTS; }
integer pixels_at_once(void) { return BLOCK; }
static float *plane_of(struct planes planes, integer number) { return planes.at + number * planes.stride; }

/* Compute one block of sums: OUTPUTS rows of `vectors` vectors. */
INLINED void multiply(const int vectors, const struct segment *segment, integer segments, const float *weights,
                      const float *in, integer in_stride, float *out, integer out_stride) {
    vector sum[OUTPUTS][VECTORS];
    for (int o = 0; o < OUTPUTS; o++)
        for (int v = 0; v < vectors; v++) sum[o][v] = (vector){0};
    for (integer s = 0; s < segments; s++, segment++)
        for (integer c = 0; c < segment->channels; c++) {
            const float *plane = in + (segment->first + c) * in_stride;
            for (int v = 0; v < vectors; v++) __builtin_prefetch(plane + AHEAD * in_stride + v * LANES);
            for (integer t = 0; t < segment->taps; t++, weights += OUTPUTS) {
                const vector *x = (const vector *)(plane + segment->offset[t]);
                for (int o = 0; o < OUTPUTS; o++)
                    for (int v = 0; v < vectors; v++) sum[o][v] += weights[o] * x[v];
            }
        }
    for (int o = 0; o < OUTPUTS; o++)
        for (int v = 0; v < vectors; v++) *(vector *)(out + o * out_stride + v * LANES) = sum[o][v];
}

static void clear_edges(float *plane, integer n, integer h, integer w) {
    memset(plane, 0, (w + 2) * sizeof(float));
    float *row = plane + w + 2;
    for (integer i = 0; i < n; i++, row += w + 1) {
        for (integer y = 0; y < h; y++, row += w + 1) row[w] = 0;
        memset(row, 0, (w + 1) * sizeof(float));
    }
}

static float *row_of(float *plane, integer h, integer w, integer image, integer row) {
    return plane + w + 2 + (image * (h + 1) + row) * (w + 1);
}

/* Join a row of tiles of a convolution: 16 products (4 x 4) -> 2 rows of pixels. */
static void join_tiles(const float *in, integer apart, integer tiles, float *upper, float *lower) {
    for (integer x = 0; x < tiles; x++) {
        float above[4], below[4];
        for (int c = 0; c < 4; c++) {
            const float *m = in + c * apart + x;
            above[c] = m[0] + m[4 * apart] + m[8 * apart];
            below[c] = m[4 * apart] - m[8 * apart] - m[12 * apart];
        }
        upper[2 * x] = above[0] + above[1] + above[2], upper[2 * x + 1] = above[1] - above[2] - above[3];
        lower[2 * x] = below[0] + below[1] + below[2], lower[2 * x + 1] = below[1] - below[2] - below[3];
    }
}

/* Join a row of tiles of a doubling convolution: 25 products (5 x 5) -> 4 rows of pixels. */
static void join_doubled(const float *in, integer apart, integer tiles, float *rows, integer stride) {
    for (integer x = 0; x < tiles; x++, in++, rows += 4) {
        float m[4][5];
        for (int c = 0; c < 5; c++) {
            const float *of = in + c * apart;
            m[0][c] = of[0], m[1][c] = of[10 * apart] + of[15 * apart];
            m[2][c] = of[5 * apart], m[3][c] = of[15 * apart] - of[20 * apart];
        }
        for (int r = 0; r < 4; r++) {
            float *out = rows + r * stride;
            out[0] = m[r][0], out[1] = m[r][2] + m[r][3], out[2] = m[r][1], out[3] = m[r][3] - m[r][4];
        }
    }
}

/* Join the products of one output into a plane of pixels. */
static void arrange(const struct layer *layer, integer n, const float *products, integer apart, float *plane) {
    integer h = layer->h, w = layer->w;
    if (layer->reading == PIXELS) {
        memcpy(plane + w + 2, products, n * (h + 1) * (w + 1) * sizeof(float));
        clear_edges(plane, n, h, w);
        return;
    }
    integer rows = (h + 1) / 2, columns = (w + 1) / 2, side = layer->reading == TILES ? 2 : 4;
    float joined[4][4 * columns];
    h = h * side / 2, w = w * side / 2;
    clear_edges(plane, n, h, w);
    for (integer i = 0; i < n; i++)
        for (integer row = 0; row < rows; row++) {
            const float *in = products + (i * rows + row) * columns;
            if (side == 2)
                join_tiles(in, apart, columns, joined[0], joined[1]);
            else
                join_doubled(in, apart, columns, joined[0], 4 * columns);
            for (integer y = 0; y < side && row * side + y < h; y++)
                memcpy(row_of(plane, h, w, i, row * side + y), joined[y], w * sizeof(float));
        }
}

/* Transform four numbers in one direction: one before a tile, the two of the tile, one after it. */
INLINED void transform(int doubling, float a, float b, float c, float d, float *t) {
    t[0] = doubling ? b : a - c, t[1] = doubling ? c : b + c;
    t[2] = doubling ? b - c : c - b, t[3] = doubling ? c - d : b - d;
}

/* Cut a plane of pixels into 16 planes of tiles. Values beyond odd edges affect only pixels that do not exist. */
INLINED void cut(const int doubling, float *plane, integer n, integer h, integer w, float *out, integer apart) {
    integer rows = (h + 1) / 2, columns = (w + 1) / 2;
    float even[4][columns + 1], odd[4][columns + 1];
    for (integer i = 0; i < n; i++)
        for (integer row = 0; row < rows; row++, out += columns) {
            const float *in = row_of(plane, h, w, i, 2 * row) - (w + 1) - 1, *next = in + w + 1;
            const float *third = next + w + 1, *last = third + w + 1;
            for (integer x = 0; x <= columns; x++) {
                float t[4];
                transform(doubling, in[2 * x], next[2 * x], third[2 * x], last[2 * x], t);
                for (int k = 0; k < 4; k++) even[k][x] = t[k];
                transform(doubling, in[2 * x + 1], next[2 * x + 1], third[2 * x + 1], last[2 * x + 1], t);
                for (int k = 0; k < 4; k++) odd[k][x] = t[k];
            }
            for (int k = 0; k < 4; k++)
                for (integer x = 0; x < columns; x++) {
                    float t[4];
                    transform(doubling, even[k][x], odd[k][x], even[k][x + 1], odd[k][x + 1], t);
                    for (int l = 0; l < 4; l++) out[(4 * k + l) * apart + x] = t[l];
                }
        }
}

/* Return the mean of the pixels, or of their squared distances from a centre. */
INLINED float mean_of(const float *in, integer h, integer w, const float *centre) {
    float sum = 0;
    for (integer y = 0; y < h; y++, in += w + 1) {
        float of_row = 0;
        for (integer x = 0; x < w; x++) of_row += centre ? (in[x] - *centre) * (in[x] - *centre) : in[x];
        sum += of_row;
    }
    return sum / (h * w);
}

/* Apply InstanceNorm -> LeakyReLU to a plane. */
static void activate(float *raw, const struct results *to, integer n, integer h, integer w, float *active,
    float *means) {
    const float slope = to->slope;
    clear_edges(active, n, h, w);
    for (integer i = 0; i < n; i++) {
        const float *in = row_of(raw, h, w, i, 0);
        float mean = mean_of(in, h, w, NULL), scale = 1 / sqrtf(mean_of(in, h, w, &mean) + to->epsilon);
        float *out = row_of(active, h, w, i, 0);
        for (integer y = 0; y < h; y++, in += w + 1, out += w + 1)
            for (integer x = 0; x < w; x++) {
                float value = (in[x] - mean) * scale;
                out[x] = value > 0 ? value : slope * value;
            }
        if (means) means[i * to->means_stride] = mean;
    }
}

/* Halve height and width of a plane: take the pixels of phase 0 to 3, or, for phase 4, the means of 2 x 2 pixels. */
static void halve(float *plane, integer n, integer h, integer w, int phase, float *out) {
    clear_edges(out, n, h / 2, w / 2);
    for (integer i = 0; i < n; i++)
        for (integer y = 0; y < h / 2; y++) {
            const float *upper = row_of(plane, h, w, i, 2 * y), *lower = upper + w + 1;
            const float *in = (phase / 2 ? lower : upper) + phase % 2;
            float *row = row_of(out, h / 2, w / 2, i, y);
            for (integer x = 0; phase < 4 && x < w / 2; x++) row[x] = in[2 * x];
            for (integer x = 0; phase == 4 && x < w / 2; x++)
                row[x] = (upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1]) / 4;
        }
}

/* Write the requested forms of output o, from its plane of pixels. */
static void deliver(float *raw, const struct results *to, integer n, integer h, integer w, integer outputs, integer o,
                    int activated, float *spare) {
    float *plane = raw;
    for (integer i = 0; to->maps && i < n; i++)
        for (integer y = 0; y < h; y++)
            memcpy(to->maps + ((i * outputs + o) * h + y) * w, row_of(raw, h, w, i, y), w * sizeof(float));
    if (to->raw_doubled.at)
        cut(1, raw, n, h, w, plane_of(to->raw_doubled, o), to->raw_doubled.apart * to->raw_doubled.stride);
    if (activated) {
        plane = to->active.at ? plane_of(to->active, o) : spare;
        activate(raw, to, n, h, w, plane, to->means ? to->means + o : NULL);
    }
    if (to->pooled.at) halve(plane, n, h, w, 4, plane_of(to->pooled, o));
    for (int phase = 0; to->split.at && phase < 4; phase++)
        halve(plane, n, h, w, phase, plane_of(to->split, phase * to->split.apart + o));
    if (to->tiles.at) cut(0, plane, n, h, w, plane_of(to->tiles, o), to->tiles.apart * to->tiles.stride);
    if (to->doubled.at) cut(1, plane, n, h, w, plane_of(to->doubled, o), to->doubled.apart * to->doubled.stride);
}

/* Return the floats of a plane of pixels, with those beyond it that may be read. */
integer plane_floats(integer n, integer h, integer w) { return (n * (h + 1) + 4) * (w + 1) + 2; }

static integer products_floats(const struct layer *layer, integer n) {
    integer h = layer->h, w = layer->w;
    return (layer->reading == PIXELS ? n * (h + 1) * (w + 1) : n * ((h + 1) / 2) * ((w + 1) / 2)) + BLOCK;
}

static integer rounded_outputs(const struct layer *layer) { return (layer->outputs + OUTPUTS - 1) / OUTPUTS * OUTPUTS; }

/* Return the floats of scratch memory that `convolve` needs: its products, and two planes of an output. */
integer scratch_floats(const struct layer *layer, integer n) {
    integer scale = layer->reading == DOUBLING ? 2 : 1;
    return layer->products * rounded_outputs(layer) * products_floats(layer, n) +
           2 * plane_floats(n, scale * layer->h, scale * layer->w);
}

/* Compute a layer: the convolution of the planes `in`, and the requested forms of its outputs. */
void convolve(const struct layer *layer, const struct planes *in, const struct results *to, integer n, float *scratch) {
    integer scale = layer->reading == DOUBLING ? 2 : 1, h = scale * layer->h, w = scale * layer->w;
    integer stride = products_floats(layer, n), pixels = stride - BLOCK, outputs = rounded_outputs(layer);
    const float *first = in->at + (layer->reading == PIXELS ? layer->w + 2 : 0), *weights = layer->weights;
    for (integer p = 0; p < layer->products; p++) {
        const struct segment *segment = layer->segment + p * layer->segments;
        integer size = 0;
        for (integer s = 0; s < layer->segments; s++) size += segment[s].channels * segment[s].taps * OUTPUTS;
        for (integer o = 0; o < outputs; o += OUTPUTS, weights += size) {
            float *out = scratch + (p * outputs + o) * stride;
            integer at = 0;
            for (; at + 2 * LANES < pixels; at += BLOCK)
                multiply(VECTORS, segment, layer->segments, weights, first + at, in->stride, out + at, stride);
            if (at + LANES < pixels)
                multiply(2, segment, layer->segments, weights, first + at, in->stride, out + at, stride);
            else if (at < pixels)
                multiply(1, segment, layer->segments, weights, first + at, in->stride, out + at, stride);
        }
    }
    float *raw = scratch + layer->products * outputs * stride;
    for (integer o = 0; o < layer->outputs; o++) {
        arrange(layer, n, scratch + o * stride, outputs * stride, raw);
        deliver(raw, to, n, h, w, layer->outputs, o, to->maps == NULL, raw + plane_floats(n, h, w));
    }
}

/* Write the requested forms of the network's input, maps (n, channels, h, w). scratch: two planes of pixels. */
void begin(const float *maps, integer channels, integer h, integer w, int activated, const struct results *to,
           integer n, float *scratch) {
    clear_edges(scratch, n, h, w);
    for (integer o = 0; o < channels; o++) {
        for (integer i = 0; i < n; i++)
            for (integer y = 0; y < h; y++)
                memcpy(row_of(scratch, h, w, i, y), maps + ((i * channels + o) * h + y) * w, w * sizeof(float));
        deliver(scratch, to, n, h, w, channels, o, activated, scratch + plane_floats(n, h, w));
    }
}

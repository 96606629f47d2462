/* stats_file.c: whatever holds numbers, as one list of arrays. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/stats.h"
#include "model/gguf.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static es_status take_tensors(es_stats_file *file, const es_tensor_set *set)
{
    const size_t count = es_tensor_count(set), skipped = es_tensor_unreadable_count(set);
    file->item = calloc(count + 1, sizeof *file->item);
    file->skipped = calloc(skipped + 1, sizeof *file->skipped);
    if (!file->item || !file->skipped) return es_fail(ES_NO_MEMORY, "no memory for a list of %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        const es_tensor *tensor = es_tensor_at(set, i);
        es_stats_item *item = &file->item[file->count];
        item->name = strdup(tensor->name);
        if (!item->name) return es_fail(ES_NO_MEMORY, "no memory for a list of %zu tensors", count);
        file->count++;
        item->type = es_dtype_get_info(tensor->type)->name;
        item->rank = tensor->rank;
        memcpy(item->shape, tensor->shape, sizeof tensor->shape);
        item->bytes = tensor->bytes;
        item->input = es_stats_of_tensor(tensor, &file->kernels);
    }
    for (size_t i = 0; i < skipped; i++) {
        const char *type, *name = es_tensor_unreadable_at(set, i, &type);
        es_text line = {0};
        es_text_printf(&line, "%s (%s)", name, type);
        if (line.failed) return es_fail(ES_NO_MEMORY, "no memory for a list of %zu tensors", skipped);
        file->skipped[file->skipped_count++] = line.data;
    }
    return ES_OK;
}

static es_status take_array(es_stats_file *file, const es_npy *npy, const char *type, const es_stats_input *input)
{
    file->item = calloc(1, sizeof *file->item);
    if (!file->item) return es_fail(ES_NO_MEMORY, "no memory for a list of one array");
    const char *slash = strrchr(file->path, '/');
    es_stats_item *item = file->item;
    item->name = strdup(slash ? slash + 1 : file->path);
    if (!item->name) return es_fail(ES_NO_MEMORY, "no memory for a name");
    file->count = 1;
    item->type = type;
    item->rank = npy->rank;
    memcpy(item->shape, npy->shape, sizeof npy->shape);
    item->bytes = (size_t)npy->items * (size_t)npy->bytes;
    item->input = *input;
    return ES_OK;
}

static const struct number {
    const char *name;
    char kind;
    int bytes;
} numbers[] = {
    {"f64",  'f', 8},
    {"f32",  'f', 4},
    {"f16",  'f', 2},
    {"bf16", 'h', 2},
    {"i8",   'i', 1},
    {"i16",  'i', 2},
    {"i32",  'i', 4},
    {"i64",  'i', 8},
    {"u8",   'u', 1},
    {"u16",  'u', 2},
    {"u32",  'u', 4},
    {"u64",  'u', 8},
    {"bool", 'b', 1}
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static const char *name_of(const es_npy *npy)
{
    for (int i = 0; i < NUMBERS; i++)
        if (numbers[i].kind == npy->kind && numbers[i].bytes == npy->bytes) return numbers[i].name;
    return "?";
}

static es_status open_raw(es_stats_file *file, const char *type, int64_t columns)
{
    int which = 0;
    while (which < NUMBERS && strcmp(numbers[which].name, type) != 0) which++;
    if (which == NUMBERS) return es_fail(ES_INVALID, "--type %s: f64, f32, f16, bf16, i8 to i64, u8 to u64 or bool", type);
    const struct number *n = &numbers[which];
    ES_TRY(es_file_map(file->path, &file->mapped));
    es_npy npy = {.kind = n->kind, .bytes = n->bytes, .rank = 1, .data = file->mapped.data,
                  .items = (int64_t)(file->mapped.bytes / (size_t)n->bytes)};
    if (file->mapped.bytes % (size_t)n->bytes)
        return es_fail(ES_BAD_FILE, "%s: %zu bytes are no whole number of %s", file->path, file->mapped.bytes, type);
    if (columns > 0 && npy.items % columns)
        return es_fail(ES_BAD_FILE, "%s: %" PRId64 " numbers are no whole number of rows of %" PRId64, file->path, npy.items,
                       columns);
    npy.shape[0] = npy.items;
    if (columns > 0) npy.rank = 2, npy.shape[0] = npy.items / columns, npy.shape[1] = columns;
    if (n->kind == 'h') npy.kind = 'u';
    es_stats_input input = es_stats_of_npy(&npy, &file->kernels);
    if (n->kind == 'h') input.convert = NULL, input.type = ES_ITEM_BF16, input.stored = ES_BF16;
    return take_array(file, &npy, n->name, &input);
}

static es_status open_npy(es_stats_file *file)
{
    es_npy npy;
    ES_TRY(es_npy_parse(file->path, file->mapped.data, file->mapped.bytes, &npy));
    const es_stats_input input = es_stats_of_npy(&npy, &file->kernels);
    return take_array(file, &npy, name_of(&npy), &input);
}

es_status es_stats_file_open(const char *path, const char *raw_type, int64_t columns, es_stats_file *file)
{
    *file = (es_stats_file){.path = path};
    ES_TRY(es_kernels_select(NULL, &file->kernels));
    if (raw_type) return open_raw(file, raw_type, columns);
    if (es_path_is_folder(path) || ends_with(path, ".safetensors")) {
        ES_TRY(es_safetensors_open(path, &file->set));
        return take_tensors(file, file->set);
    }
    ES_TRY(es_file_map(path, &file->mapped));
    const unsigned char *data = file->mapped.data;
    if (file->mapped.bytes >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) return open_npy(file);
    if (file->mapped.bytes >= 4 && memcmp(data, "GGUF", 4) == 0) {
        ES_TRY(es_gguf_open(path, &file->gguf));
        return take_tensors(file, es_gguf_tensors(file->gguf));
    }
    return es_fail(ES_BAD_FILE,
                   "%s: neither a model (.gguf, .safetensors, a folder) nor a .npy file; for plain numbers say which "
                   "with --type",
                   path);
}

void es_stats_file_close(es_stats_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        free(file->item[i].name);
        es_text_free(&file->item[i].notes);
        es_tensor_stats_free(&file->item[i].stats);
    }
    for (size_t i = 0; i < file->skipped_count; i++) free(file->skipped[i]);
    free(file->item);
    free(file->skipped);
    es_stats_gpu_close(file->gpu);
    es_tensor_set_close(file->set);
    es_gguf_close(file->gguf);
    es_file_unmap(&file->mapped);
}

void es_stats_put_shape(const es_stats_item *item, es_text *out)
{
    es_text_putc(out, '[');
    for (int i = 0; i < item->rank; i++) es_text_printf(out, "%s%" PRId64, i ? ", " : "", item->shape[i]);
    es_text_putc(out, ']');
}

static void note(es_text *notes, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(es_text *notes, const char *format, ...)
{
    char line[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (notes->bytes) es_text_puts(notes, "; ");
    es_text_puts(notes, line);
}

/* Limits are for weights: a normal distribution's largest of a billion lies at 6 deviations, its excess kurtosis is 0. */
#define PEAK_NOTE 40.0
#define KURTOSIS_NOTE 30.0
#define ENOUGH 1000

void es_stats_take_notes(es_stats_item *item)
{
    const es_tensor_stats *stats = &item->stats;
    const es_summary *s = &stats->summary;
    const double deviation = es_summary_deviation(s), largest = s->max > -s->min ? s->max : -s->min;
    es_text *notes = &item->notes;
    if (s->nans) note(notes, "%" PRId64 " NaN", s->nans);
    if (s->plus_infs + s->minus_infs) note(notes, "%" PRId64 " infinite", s->plus_infs + s->minus_infs);
    if (s->count > 1 && s->min == 0 && s->max == 0) note(notes, "all zeros");
    else if (s->count >= ENOUGH && s->min == s->max) note(notes, "all equal");
    else if (s->count >= ENOUGH && (double)s->zeros > 0.5 * (double)s->count)
        note(notes, "%.0f %% zeros", 100 * (double)s->zeros / (double)s->count);
    if (stats->zero_rows_at_end * 16 >= stats->rows && stats->zero_rows_at_end >= 4)
        note(notes, "the last %" PRId64 " of %" PRId64 " rows are zeros (cut short?)", stats->zero_rows_at_end, stats->rows);
    if (stats->outlier_rows)
        note(notes, "%" PRId64 " outlier row%s", stats->outlier_rows, stats->outlier_rows == 1 ? "" : "s");
    if (s->count >= ENOUGH && deviation > 0 && largest > PEAK_NOTE * deviation)
        note(notes, "peaks at %.0f deviations", largest / deviation);
    else if (s->count >= ENOUGH && es_summary_kurtosis(s) > KURTOSIS_NOTE) note(notes, "heavy tails");
}

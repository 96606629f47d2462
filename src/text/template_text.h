/* template_text.h: what string methods and text filters share. */
#ifndef ES_TEXT_TEMPLATE_TEXT_H
#define ES_TEXT_TEMPLATE_TEXT_H

#include "text/template_value.h"

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
typedef enum tpl_case { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_SWAP } tpl_case;

/** Without the code points in `chars` (NULL: white space) at its ends. */
tpl_value tpl_strip(tpl_run *run, const tpl_string *string, const tpl_string *chars, int sides);
tpl_value tpl_recase(tpl_run *run, const tpl_string *string, tpl_case to);
/** At most `count` replacements; all if negative. */
tpl_value tpl_replace(tpl_run *run, const tpl_string *string, const tpl_string *old, const tpl_string *fresh, int64_t count);
/** Lines as str.splitlines() has them. */
tpl_value tpl_split_lines(tpl_run *run, const tpl_string *string, bool keep_ends);
/** Padded to `width`; `left`:`right` says on which sides. */
tpl_value tpl_pad(tpl_run *run, const tpl_string *string, int64_t width, uint32_t fill, bool left, bool right);
/** Offset of `part` in data[from, to), or SIZE_MAX; the last one if `last`. */
size_t tpl_find(tpl_run *run, const tpl_string *string, const tpl_string *part, size_t from, size_t to, bool last);
bool tpl_all(const tpl_string *string, bool (*is)(uint32_t point));
/** islower() and isupper(): cased letters, all of them so. */
bool tpl_cased(const tpl_string *string, bool upper);
/** str.format(). */
tpl_value tpl_format(tpl_run *run, tpl_value self, const tpl_args *args);

#endif

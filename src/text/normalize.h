/* normalize.h: Unicode's composed normal form (NFC), for tokenizers trained on it. */
#ifndef ES_TEXT_NORMALIZE_H
#define ES_TEXT_NORMALIZE_H

#include "base/error.h"
#include "base/text.h"

/** True when the text is surely in NFC already (no character past U+02FF): then nothing needs to be done. */
bool es_nfc_is_plain(const unsigned char *text, size_t bytes);
/** Append the NFC form of `text`; bytes that are no UTF-8 stay as they are. O(n log n) whatever the text. */
es_status es_nfc_append(const unsigned char *text, size_t bytes, es_text *out);

#endif

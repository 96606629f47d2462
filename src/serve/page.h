/* page.h: the chat page, one HTML file put together at build time from src/serve/page/. */
#ifndef ES_SERVE_PAGE_H
#define ES_SERVE_PAGE_H

#include <stddef.h>

extern const unsigned char es_page_html[]; /**< UTF-8, not terminated */
extern const size_t es_page_bytes;
/** The Content-Security-Policy under which its own script and style run, and nothing else. */
extern const char es_page_policy[];

#endif
